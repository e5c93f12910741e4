// The events of all streams.

import { get, path } from "./api.js";
import { button, fill, h } from "./dom.js";
import { eventTable } from "./event_table.js";

const CHOICES = [
  ["", "All"],
  ["open", "Open"],
  ["closed", "Closed"],
];

export class EventsView {
  title = "Events";

  /** @param {import("./store.js").Store} store */
  constructor(store) {
    this.store = store;
    this.state = "";
    this.requests = new AbortController();
    /** @type {number | undefined} */
    this.timer = undefined;
    this.choice = h(
      "div",
      { class: "choice", role: "group", "aria-label": "Filter by state" },
      CHOICES.map(([state, label]) =>
        button(label, () => this.#choose(state), { "data-state": state, "aria-pressed": String(!state) }),
      ),
    );
    this.list = h("div", {}, h("p", { class: "note" }, "Loading …"));
    this.element = h(
      "div",
      {},
      h("h1", { tabindex: -1 }, "Events"),
      h("div", { class: "controls" }, this.choice),
      h("section", {}, this.list),
    );
    this.end = store.subscribe(
      (change) => change.kind === "event" && change.event.change !== "updated" && this.#soon(),
    );
  }

  shown() {
    this.refresh();
  }

  destroy() {
    this.end();
    clearTimeout(this.timer);
    this.requests.abort();
  }

  /** @param {string} state */
  #choose(state) {
    this.state = state;
    for (const each of this.choice.children)
      each.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (each).dataset.state === state));
    this.refresh();
  }

  /** Many events may open at once. */
  #soon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh();
    }, 1000);
  }

  async refresh() {
    const { state } = this;
    try {
      const { events } = await get(path("v1/events", [], { state, limit: 200 }), this.requests.signal);
      if (state !== this.state) return;
      const none = h("p", { class: "note" }, state === "open" ? "No event is open." : "No event so far.");
      fill(this.list, events.length ? eventTable("Events", events, this.store.now(), true) : none);
    } catch (error) {
      if (!this.requests.signal.aborted)
        fill(this.list, h("p", { class: "warning" }, error instanceof Error ? error.message : String(error)));
    }
  }
}
