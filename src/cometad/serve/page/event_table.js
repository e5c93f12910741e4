// Events as a table.

import { h, scroll, setText } from "./dom.js";
import { duration, levelName, moment, number, severityName } from "./format.js";

/** @typedef {import("./types.js").EventSummary} EventSummary */

/** A bar and a word. @param {number} severity @param {string} [meaning] shown on hover */
export function severityMark(severity, meaning) {
  const bar = h("i");
  bar.style.setProperty("--part", `${Math.round(100 * severity)}%`);
  return h("span", { class: "severity", title: meaning }, bar, `${severity.toFixed(2)} ${severityName(severity)}`);
}

/** @param {import("./types.js").Verdict} verdict */
export function verdictName(verdict) {
  return verdict === "fault" ? "Fault" : verdict === "normal" ? "Normal" : "–";
}

/** Seconds from start to end, or since it was opened. @param {EventSummary} event @param {number} now */
export function lasted(event, now) {
  if (event.state === "open" && event.opened_at !== null) return now - event.opened_at;
  if (event.start_time === null || event.stop_time === null) return null;
  return event.stop_time - event.start_time;
}

/** @param {EventSummary} event @param {number} now */
export function lastedText(event, now) {
  const seconds = lasted(event, now);
  return seconds === null ? `${event.steps} steps` : duration(seconds);
}

/** @param {EventSummary} event */
export function stateName({ state, new_level }) {
  return state === "open" ? "Open" : new_level ? "New level" : "Closed";
}

/** @param {string} label @param {EventSummary[]} events @param {number} now @param {boolean} hasStream */
export function eventTable(label, events, now, hasStream) {
  const names = [
    "Event",
    ...(hasStream ? ["Stream"] : []),
    "Level",
    "State",
    "Start",
    "Duration",
    "Peak score",
    "Severity",
    "Top variables",
    "Verdict",
  ];
  const head = h(
    "tr",
    {},
    names.map((name) => h("th", { scope: "col" }, name)),
  );
  const rows = events.map((event) => row(event, now, hasStream));
  return scroll(label, h("table", { class: "records events" }, h("thead", {}, head), h("tbody", {}, rows)));
}

/** Bring the durations of open events up to date. @param {HTMLElement} table @param {EventSummary[]} events @param {number} now */
export function tickDurations(table, events, now) {
  for (const event of events.filter(({ state }) => state === "open")) {
    const place = table.querySelector(`[data-event="${CSS.escape(event.id)}"]`);
    if (place) setText(place, lastedText(event, now));
  }
}

/** @param {EventSummary} event @param {number} now @param {boolean} hasStream */
function row(event, now, hasStream) {
  const link = h(
    "a",
    { href: `#/events/${event.id}`, "aria-label": `Event ${event.number} of ${event.stream}` },
    `Event ${event.number}`,
  );
  const stream = h("a", { href: `#/streams/${encodeURIComponent(event.stream)}` }, event.stream);
  const state = h("span", { class: `tag ${event.state}` }, stateName(event));
  const variables =
    event.variables
      .slice(0, 3)
      .map(([name]) => name)
      .join(", ") || "–";
  return h("tr", { class: event.level }, [
    cell("Event", link),
    hasStream && cell("Stream", stream),
    cell("Level", levelName(event.level)),
    cell("State", state),
    cell("Start", moment(event.start_time)),
    h("td", { "data-name": "Duration", "data-event": event.id }, lastedText(event, now)),
    cell("Peak score", number(event.peak_score)),
    cell("Severity", severityMark(event.severity, event.meaning)),
    h("td", { "data-name": "Top variables", class: "whole" }, variables),
    h("td", { "data-name": "Verdict", class: event.verdict ? null : "none" }, verdictName(event.verdict)),
  ]);
}

/** @param {string} name @param {import("./dom.js").Child} content */
function cell(name, content) {
  return h("td", { "data-name": name }, content);
}
