// Building and changing elements. Data only ever becomes text nodes or attributes, never markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element. Attributes that start with "on" are listeners; null, undefined and false leave an attribute out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...present(children));
  return element;
}

/** @param {Element} element @param {string} name @param {any} value */
export function setAttribute(element, name, value) {
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value))
    element.setAttribute(name, value === true ? "" : String(value));
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function present(children) {
  const kept = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  return kept.map((child) => (child instanceof Node ? child : String(child)));
}

/** Replace what an element holds. @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

/** Write a text if it changed: each write costs a layout. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...SVGElement} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children);
  return element;
}

/** One of the icons in the page. @param {string} name */
export function icon(name) {
  return svg("svg", { class: `icon ${name}`, "aria-hidden": "true" }, svg("use", { href: `#icon-${name}` }));
}

/**
 * A titled part of a view.
 * @param {string} id
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function section(id, title, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

/** Name and value pairs. @param {string} kind @param {[string, Child | Child[]][]} pairs */
export function facts(kind, pairs) {
  const entries = pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, ...[value].flat())]);
  return h("dl", { class: kind }, kind === "facts" ? entries.map((entry) => h("div", {}, ...entry)) : entries.flat());
}

/** A table that scrolls if it is too wide. @param {string} label @param {HTMLTableElement} table */
export function scroll(label, table) {
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, table);
}

/** @param {string} text @param {() => void} action @param {Record<string, any>} [attributes] */
export function button(text, action, attributes = {}) {
  return h("button", { type: "button", onclick: action, ...attributes }, text);
}

/** The links from the fleet down to a view. @param {[string, string][]} links @param {string} here */
export function crumbs(links, here) {
  const items = links.map(([href, text]) => h("li", {}, h("a", { href }, text)));
  return h(
    "nav",
    { "aria-label": "Breadcrumb" },
    h("ol", { class: "crumbs" }, items, h("li", { "aria-current": "page" }, here)),
  );
}

/** Call a function before the next frame, however often it is asked for. @param {() => void} draw */
export function onceAFrame(draw) {
  let asked = 0;
  const run = () => {
    asked = 0;
    draw();
  };
  return {
    ask: () => {
      asked ||= requestAnimationFrame(run);
    },
    cancel: () => cancelAnimationFrame(asked),
  };
}

/**
 * Ask before something that cannot be undone.
 * @param {string} question
 * @param {string} action the name of the button that goes ahead
 * @returns {Promise<boolean>}
 */
export function confirmed(question, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": action, onclose: () => done(dialog.returnValue === "yes") });
    const done = (/** @type {boolean} */ answer) => {
      dialog.remove();
      resolve(answer);
    };
    const cancel = button("Cancel", () => dialog.close("no"));
    const go = button(action, () => dialog.close("yes"), { class: "danger" });
    fill(dialog, h("p", {}, question), h("div", { class: "buttons" }, cancel, go));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * The legend of a chart, as in reports. A kind is "event", "range", or "curve" and a class.
 * @param {[string, string][]} entries
 */
export function legend(entries) {
  return h(
    "ul",
    { class: "legend" },
    entries.map(([kind, text]) => h("li", {}, sample(kind), text)),
  );
}

/** @param {string} kind */
function sample(kind) {
  const box = { viewBox: "0 0 28 12", "aria-hidden": "true" };
  if (kind.startsWith("curve")) return svg("svg", box, svg("path", { class: kind, d: "M0 6H28" }));
  const band = svg("path", { class: kind === "event" ? "band" : "band range", d: "M2 0H26V12H2Z" });
  return svg("svg", box, band, ...(kind === "event" ? [svg("path", { class: "edge", d: "M2 0V12" })] : []));
}
