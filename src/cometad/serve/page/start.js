// What a new service shows: what to do next.

import { send } from "./api.js";
import { button, h } from "./dom.js";
import { command, saying } from "./forms.js";

export class StartView {
  title = "Start";

  /** @param {import("./store.js").Store} store @param {{canWrite: boolean, hasTokens: boolean}} options */
  constructor(store, { canWrite, hasTokens }) {
    this.store = store;
    /** @type {string | null} the stream to open once it exists */
    this.wanted = null;
    const said = h("p", { class: "said", role: "status" });
    this.tryIt = button("Try it", () => saying(said, this.tryIt, () => this.#demo()), {
      class: "main",
      disabled: !canWrite,
    });
    this.element = h(
      "div",
      {},
      h("h1", { tabindex: -1 }, "No streams yet"),
      h(
        "section",
        { class: "hero", "aria-label": "Demo" },
        h(
          "div",
          {},
          h("h2", {}, "See it at work"),
          h("p", {}, "Runs a simulated plant with faults as a stream called demo. You can delete it at any time."),
        ),
        h("div", {}, this.tryIt, said),
      ),
      h("section", { "aria-label": "Next steps" }, h("h2", {}, "Connect your own readings"), steps(hasTokens)),
    );
    this.end = store.subscribe((change) => change.kind === "stream" && this.wanted && this.#open());
  }

  destroy() {
    this.end();
  }

  async #demo() {
    const { stream } = await send("POST", "v1/demo");
    this.wanted = stream;
    this.#open();
    this.tryIt.hidden = true;
    return "Fitting a detector for the demo plant; this takes a few seconds …";
  }

  /** Open the demo once its stream exists. */
  #open() {
    if (this.wanted && this.store.streams.has(this.wanted))
      location.hash = `#/streams/${encodeURIComponent(this.wanted)}`;
  }
}

/** @param {boolean} hasTokens */
function steps(hasTokens) {
  const here = `${location.origin}${location.pathname}v1`;
  const token = hasTokens ? " -H 'Authorization: Bearer TOKEN'" : "";
  return h(
    "ol",
    { class: "steps" },
    h(
      "li",
      {},
      h("h3", {}, "Fit a detector"),
      h(
        "p",
        {},
        "On readings of normal operation, here under ",
        h("a", { href: "#/detectors" }, "Detectors"),
        " or from the command line:",
      ),
      command(`curl${token} -H 'Content-Type: text/csv' --data-binary @normal.csv ${here}/detectors/pump/fit`),
      h("p", {}, "You can also upload a detector that was saved elsewhere."),
    ),
    h(
      "li",
      {},
      h("h3", {}, "Create a stream"),
      command(
        `curl${token} -X PUT --json '{"detector": "pump", "budget": {"alerts_per_day": 3}}' ${here}/streams/pump-7`,
      ),
    ),
    h(
      "li",
      {},
      h("h3", {}, "Post readings"),
      command(
        `curl${token} --json '{"time": "${new Date().toISOString()}", "flow": 4.2, "pressure": 1.3}' ${here}/streams/pump-7/readings`,
      ),
      h("p", {}, "The stream appears on this page as soon as it exists."),
    ),
  );
}
