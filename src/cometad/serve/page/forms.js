// Parts of forms.

import { fill, h } from "./dom.js";

let fields = 0; // so far, for ids

/**
 * A labeled field with an optional hint below it.
 * @param {string} label
 * @param {HTMLElement} input
 * @param {string} [hint]
 */
export function field(label, input, hint) {
  fields += 1;
  input.id = `field-${fields}`;
  if (hint) input.setAttribute("aria-describedby", `hint-${fields}`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: input.id }, label),
    input,
    hint && h("small", { id: `hint-${fields}` }, hint),
  );
}

/** @param {Record<string, any>} attributes */
export function input(attributes) {
  return h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...attributes });
}

/**
 * A form that calls the service, and says how that went.
 * @param {string} action the text of its button
 * @param {(values: FormData) => Promise<string>} submit returns what to say
 * @param {...import("./dom.js").Child} children
 */
export function form(action, submit, ...children) {
  const go = h("button", { class: "main" }, action);
  const said = h("p", { class: "said", role: "status" });
  const element = h("form", { onsubmit: run }, ...children, h("div", { class: "buttons" }, go), said);
  async function run(/** @type {SubmitEvent} */ event) {
    event.preventDefault();
    await saying(said, go, () => submit(new FormData(element)));
  }
  return element;
}

/**
 * Run an action with its button disabled; say what it returns, or why it failed.
 * @param {HTMLElement} said
 * @param {HTMLButtonElement | null} go
 * @param {() => Promise<string>} action
 */
export async function saying(said, go, action) {
  if (go) go.disabled = true;
  said.className = "said";
  fill(said, "Working …");
  try {
    fill(said, await action());
  } catch (error) {
    said.className = "said failed";
    fill(said, error instanceof Error ? error.message : String(error));
  } finally {
    if (go) go.disabled = false;
  }
}

/** A command to copy. @param {string} text */
export function command(text) {
  const copy = h("button", { type: "button", class: "plain", "aria-label": "Copy the command" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  });
  // Browsers have no clipboard on pages that are neither encrypted nor local.
  return h("div", { class: "command" }, h("pre", {}, h("code", {}, text)), "clipboard" in navigator && copy);
}
