// The form that asks for a token.

import { get, keepToken } from "./api.js";
import { h } from "./dom.js";
import { field, form, input } from "./forms.js";

export class SignInView {
  title = "Sign in";

  /** @param {() => void} signedIn */
  constructor(signedIn) {
    const ask = form(
      "Sign in",
      async (values) => {
        keepToken(String(values.get("token")).trim());
        await get("v1/session");
        signedIn();
        return "";
      },
      input({ name: "user", autocomplete: "username", value: "token", hidden: true }), // password managers ask for one
      field(
        "Token",
        input({ name: "token", type: "password", required: true, autocomplete: "current-password" }),
        "Kept until you close this tab.",
      ),
    );
    this.shown = () => /** @type {HTMLElement | null} */ (ask.querySelector("[type=password]"))?.focus();
    this.element = h(
      "div",
      { class: "sign-in" },
      h("h1", { tabindex: -1 }, "This service asks for a token"),
      h(
        "section",
        { "aria-label": "Sign in" },
        h("p", { class: "lead" }, "Create one on the machine that runs the service:"),
        h("pre", {}, h("code", {}, "cometad token create NAME --scope write")),
        ask,
      ),
    );
  }
}
