// The events of all streams.

import { get, path } from "./api.js";
import { button, fill, h } from "./dom.js";
import { eventTable } from "./event_table.js";

const CHOICES = [
  ["", "All"],
  ["open", "Open"],
  ["closed", "Closed"],
];
const LEVELS = [
  ["", "Alerts and notices"],
  ["alert", "Alerts"],
  ["notice", "Notices"],
];

export class EventsView {
  title = "Events";

  /** @param {import("./store.js").Store} store */
  constructor(store) {
    this.store = store;
    this.state = this.level = "";
    this.requests = new AbortController();
    /** @type {number | undefined} */
    this.timer = undefined;
    const states = this.#choice("Filter by state", CHOICES, (state) => (this.state = state));
    const levels = this.#choice("Filter by level", LEVELS, (level) => (this.level = level));
    this.list = h("div", {}, h("p", { class: "note" }, "Loading …"));
    this.element = h(
      "div",
      {},
      h("h1", { tabindex: -1 }, "Events"),
      h("div", { class: "controls" }, states, levels),
      h("p", { class: "note" }, "Alerts are sent to receivers. Notices are less severe: they are listed here, never sent."),
      h("section", {}, this.list),
    );
    this.end = store.subscribe(
      (change) => change.kind === "event" && (change.isNews || change.event.change !== "updated") && this.#soon(),
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

  /** @param {string} name @param {string[][]} choices @param {(value: string) => void} set */
  #choice(name, choices, set) {
    const buttons = choices.map(([value, label]) =>
      button(
        label,
        () => {
          set(value);
          for (const each of buttons) each.setAttribute("aria-pressed", String(each.textContent === label));
          this.refresh();
        },
        { "aria-pressed": String(!value) },
      ),
    );
    return h("div", { class: "choice", role: "group", "aria-label": name }, buttons);
  }

  /** Many events may open at once. */
  #soon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh();
    }, 1000);
  }

  async refresh() {
    const { state, level } = this;
    try {
      const { events } = await get(path("v1/events", [], { state, level, limit: 200 }), this.requests.signal);
      if (state !== this.state || level !== this.level) return;
      const what = level || "event";
      const none = h("p", { class: "note" }, state === "open" ? `No ${what} is open.` : `No ${what} so far.`);
      fill(this.list, events.length ? eventTable("Table of events", events, this.store.now(), true) : none);
    } catch (error) {
      if (!this.requests.signal.aborted)
        fill(this.list, h("p", { class: "warning" }, error instanceof Error ? error.message : String(error)));
    }
  }
}
