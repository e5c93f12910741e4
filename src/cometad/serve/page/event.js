// One event: what happened, which variables, what was expected, and the verdict on it.

import { get, path, send } from "./api.js";
import { horizontal } from "./chart.js";
import { button, crumbs, facts, fill, h, scroll, section } from "./dom.js";
import { lastedText, severityMark, stateName, verdictName } from "./event_table.js";
import { saying } from "./forms.js";
import { dateTime, levelName, moment, number, percent } from "./format.js";
import { ScoreChart } from "./score_chart.js";
import { VariableCharts } from "./variables.js";

/** @typedef {import("./types.js").EventDetail} EventDetail */
/** @typedef {import("./types.js").Verdict} Verdict */

const AGAIN = 5000; // ms between refreshes of an open event
const CONTEXT = 60; // seconds shown on each side, at least
const VERDICTS = /** @type {[Verdict, string, string][]} */ ([
  ["fault", "It was a fault", "Keeps the event as a true alarm: what looks like it goes on raising alerts."],
  [
    "normal",
    "It was normal",
    "Keeps it as a false alarm and teaches the stream, so that similar readings score lower from now on. You can withdraw this.",
  ],
  [null, "Withdraw the verdict", "Removes the verdict, and undoes what the stream learned from it."],
]);

export class EventView {
  /**
   * @param {import("./store.js").Store} store
   * @param {string} id
   * @param {{canWrite: boolean}} options
   */
  constructor(store, id, { canWrite }) {
    this.store = store;
    this.id = id;
    this.title = "Event";
    this.canWrite = canWrite;
    this.requests = new AbortController();
    this.chart = new ScoreChart({ isLow: true });
    this.variables = new VariableCharts();
    this.heading = h("h1", { tabindex: -1 }, "Loading …");
    this.top = h("div");
    this.facts = h("div", { class: "event-facts" });
    this.verdict = h("div");
    this.said = h("p", { class: "said", role: "status" });
    this.sentence = h("p", { class: "lead" });
    this.similar = h("div");
    this.parts = h("div", { hidden: true }, this.#sections());
    this.element = h("div", {}, this.top, this.heading, this.facts, this.parts);
    this.end = store.subscribe((change) => change.kind === "event" && change.event.id === id && this.refresh());
    this.timer = setInterval(() => this.event?.state === "open" && !document.hidden && this.refresh(), AGAIN);
  }

  #sections() {
    return [
      section("expected", "What was expected", this.sentence, this.variables.element),
      section("verdict", "Was this a fault?", this.verdict, this.said),
      section("score", "Score", this.chart.element),
      section("similar", "Similar events", this.similar),
    ];
  }

  shown() {
    this.refresh();
  }

  destroy() {
    this.end();
    clearInterval(this.timer);
    this.requests.abort();
    this.chart.destroy();
    this.variables.destroy();
  }

  async refresh() {
    try {
      this.#show(await get(path("v1/events", [this.id]), this.requests.signal));
      await this.#scores();
    } catch (error) {
      if (!this.requests.signal.aborted && !this.event) this.#fail(error);
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    fill(this.heading, "This event cannot be shown");
    fill(
      this.facts,
      h("p", { class: "warning" }, error instanceof Error ? error.message : String(error)),
      h("p", {}, h("a", { href: "#/events" }, "Show all events")),
    );
  }

  /** @param {EventDetail} event */
  #show(event) {
    const isFirst = !this.event;
    this.event = event;
    this.parts.hidden = false;
    if (isFirst)
      fill(
        this.top,
        crumbs(
          [
            ["#/", "Fleet"],
            [`#/streams/${encodeURIComponent(event.stream)}`, event.stream],
          ],
          `Event ${event.number}`,
        ),
      );
    if (isFirst) document.title = `Event ${event.number} of ${event.stream} · cometad`;
    fill(this.heading, headline(event));
    fill(this.facts, facts("facts", this.#values(event)));
    this.#showVerdict(event);
    this.#showVariables(event);
    this.#showSimilar(event);
  }

  /** @param {EventDetail} event @returns {[string, import("./dom.js").Child][]} */
  #values(event) {
    const isOpen = event.state === "open";
    return [
      ["Level", levelName(event.level)],
      ["State", h("span", { class: `tag ${event.state}` }, stateName(event))],
      ["Since", moment(event.start_time)],
      ["Until", isOpen ? "–" : moment(event.stop_time)],
      [isOpen ? "So far" : "Duration", lastedText(event, this.store.now())],
      ["Severity", h("span", {}, severityMark(event.severity), " ", h("span", { class: "note" }, event.meaning))],
      ["Peak score", `${number(event.peak_score)} at ${moment(event.peak_time)}`],
      ["Threshold", number(event.threshold)],
    ];
  }

  /** @param {EventDetail} event */
  #showVerdict(event) {
    const focused = [...this.verdict.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    const given = event.verdict
      ? `Verdict: ${verdictName(event.verdict).toLowerCase()}, given ${moment(event.verdict_at)}.`
      : "No verdict yet.";
    const learned =
      event.verdict !== "normal"
        ? ""
        : event.taught
          ? " The stream has learned from it."
          : " The stream has not learned from it.";
    const choices = VERDICTS.filter(([verdict]) => verdict || event.verdict).map((choice) =>
      this.#choice(event, choice),
    );
    const newLevel =
      `New level since ${moment(event.start_time)}: the readings have stayed so long where they are that it is no ` +
      "longer news. No event opens for the same state again. Is it a fault, or normal from now on?";
    fill(
      this.verdict,
      event.new_level && h("p", { class: "warning" }, newLevel),
      h("p", { class: "lead" }, `${given}${learned}`),
      event.note && h("p", { class: "warning" }, event.note),
      h("div", { class: "verdicts" }, choices),
    );
    if (focused >= 0) [...this.verdict.querySelectorAll("button")].at(focused)?.focus();
  }

  /** @param {EventDetail} event @param {[Verdict, string, string]} choice */
  #choice(event, [verdict, label, does]) {
    const id = `does-${verdict}`;
    const isGiven = verdict !== null && event.verdict === verdict;
    const go = button(label, () => this.#give(verdict, go), {
      "aria-describedby": id,
      "aria-pressed": verdict ? String(isGiven) : null,
      disabled: !this.canWrite,
    });
    return h("div", {}, go, h("p", { id, class: "note" }, does));
  }

  /** @param {Verdict} verdict @param {HTMLButtonElement} go */
  #give(verdict, go) {
    return saying(this.said, null, async () => {
      this.#show(await send("POST", path("v1/events", [this.id, "verdict"]), { verdict }));
      if (!go.isConnected && !this.verdict.contains(document.activeElement))
        this.verdict.querySelector("button")?.focus();
      return verdict ? `Verdict saved: ${verdict}.` : "Verdict withdrawn.";
    });
  }

  /** @param {EventDetail} event */
  #showVariables({ explanation, start_time, stop_time, state }) {
    fill(this.sentence, explanation?.sentence ?? "");
    const stretches =
      start_time === null ? [] : [{ start: start_time, stop: state === "open" ? Infinity : (stop_time ?? start_time) }];
    this.variables.show(
      explanation?.times ?? [],
      explanation?.variables ?? [],
      stretches,
      "There is no explanation: this detector cannot tell which variables are behind an event, or its readings are no longer stored.",
    );
  }

  /** @param {EventDetail} event */
  #showSimilar({ similar }) {
    if (!similar.length) return fill(this.similar, h("p", { class: "note" }, "No earlier event looks like this one."));
    const head = ["Event", "Similarity", "Level", "Severity", "Verdict"].map((name) => h("th", { scope: "col" }, name));
    const rows = similar.map((each) =>
      h("tr", {}, [
        h(
          "td",
          { "data-name": "Event", class: "whole" },
          h("a", { href: `#/events/${each.id}` }, `${each.stream}, ${dateTime(each.start_time)}`),
        ),
        cell("Similarity", percent(each.similarity)),
        cell("Level", levelName(each.level)),
        cell("Severity", severityMark(each.severity)),
        cell("Verdict", verdictName(each.verdict)),
      ]),
    );
    fill(
      this.similar,
      scroll(
        "Table of similar events",
        h("table", { class: "records" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)),
      ),
    );
  }

  async #scores() {
    const event = /** @type {EventDetail} */ (this.event);
    if (event.start_time === null) return;
    const stop =
      event.state === "open"
        ? (this.store.streams.get(event.stream)?.last_time ?? event.stop_time ?? event.start_time)
        : (event.stop_time ?? event.start_time);
    const context = Math.max(CONTEXT, stop - event.start_time);
    const range = { from: event.start_time - context, to: stop + context };
    const scores = await get(
      path("v1/streams", [event.stream, "scores"], { ...range, points: 800 }),
      this.requests.signal,
    );
    const { places, isTime } = horizontal(scores.times, scores.steps);
    this.chart.show({ places, isTime, scores: scores.scores, thresholds: scores.thresholds });
    this.chart.mark([event]);
  }
}

/** @param {EventDetail} event */
function headline(event) {
  const explained = event.explanation?.variables.map(({ name }) => name);
  const names = (explained ?? event.variables.map(([name]) => name)).slice(0, 2).join(" and ");
  const what = names ? `unusual ${names}` : "unusual readings";
  return `${event.stream}: ${what}`;
}

/** @param {string} name @param {import("./dom.js").Child} content */
function cell(name, content) {
  return h("td", { "data-name": name }, content);
}
