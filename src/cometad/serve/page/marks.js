// A table of severity marks: how many events of the last week each of them would have sent.

import { fill, h, scroll } from "./dom.js";
import { count } from "./format.js";
import { ALERT_FROM } from "./stream_form.js";

export const WEEK = 7 * 86400; // seconds
const MARKS = [0, ALERT_FROM, 0.25, 0.35, 0.5, 0.7];
const DIGITS = 9; // severity 1 is one reading in 10^9, as in alerting/severity.py

export class MarkTable {
  constructor() {
    this.list = h("div", {}, h("p", { class: "note" }, "Loading …"));
    this.element = h(
      "div",
      {},
      h(
        "p",
        { class: "lead" },
        "Events of the last 7 days of readings that reach a severity. Those from the mark of this stream on are alerts; a receiver may have a higher mark.",
      ),
      this.list,
    );
  }

  /** @param {import("./types.js").EventSummary[]} events @param {number | null | undefined} mark */
  show(events, mark) {
    const own = mark ?? ALERT_FROM;
    const marks = [...new Set([...MARKS, own])].sort((a, b) => a - b);
    const head = ["Mark", "Normal operation reaches it", "Events in 7 days"].map((name) =>
      h("th", { scope: "col" }, name),
    );
    const rows = marks.map((each) =>
      h("tr", { "aria-current": each === own ? "true" : null }, [
        h("td", { "data-name": "Mark" }, `${each.toFixed(2)}${each === own ? " (this stream)" : ""}`),
        h("td", { "data-name": "Normal operation reaches it" }, often(each)),
        h("td", { "data-name": "Events in 7 days" }, count(events.filter(({ severity }) => severity >= each).length)),
      ]),
    );
    const table = h("table", { class: "records" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
    fill(this.list, scroll("Table of severity marks", table));
  }
}

/** @param {number} severity */
function often(severity) {
  return severity ? `once in ${count(10 ** (DIGITS * severity))} readings` : "all events";
}
