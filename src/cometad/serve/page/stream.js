// One stream: its live score, its variables, its events and its settings.

import { get, path } from "./api.js";
import { horizontal } from "./chart.js";
import { button, crumbs, facts, fill, h, icon, onceAFrame, section, setText } from "./dom.js";
import { eventTable, tickDurations } from "./event_table.js";
import { ago, count, driftName, moment, number, percent, STATES } from "./format.js";
import { MarkTable, WEEK } from "./marks.js";
import { ScoreChart } from "./score_chart.js";
import { StreamSettings } from "./stream_settings.js";
import { VariableCharts } from "./variables.js";

/** @typedef {import("./types.js").Stream} Stream */
/** @typedef {import("./types.js").EventSummary} EventSummary */

const LIVE_POINTS = 600;
const MOST_POINTS = 4000; // in the chart; past these the scores are fetched anew, thinned
const VARIABLES_EVERY = 5000; // ms
const STORED_AFTER = 500; // ms
const CUT_AT = 120; // points in a message, of which the service then sent only the last
const SPANS = /** @type {[string, number | null][]} */ ([
  ["1 h", 3600],
  ["6 h", 21600],
  ["1 day", 86400],
  ["1 week", 604800],
  ["All", null],
]);

export class StreamView {
  /**
   * @param {import("./store.js").Store} store
   * @param {string} name
   * @param {{canWrite: boolean, range: [number, number] | null}} options
   */
  constructor(store, name, { canWrite, range }) {
    this.store = store;
    this.name = name;
    this.title = name;
    /** @type {[number, number] | null} the stretch zoomed into, or null while the chart follows the newest reading */
    this.zoom = range;
    this.follow = "Live";
    this.total = 0;
    /** @type {EventSummary[]} */
    this.events = [];
    this.requests = new AbortController();
    this.chart = new ScoreChart({ onZoom: (from, to) => this.#zoomTo(from, to) });
    this.variables = new VariableCharts();
    this.frame = onceAFrame(() => this.#facts());
    this.state = h("span", { class: "state" });
    this.reason = h("p", { class: "warning", hidden: true });
    this.values = h("div");
    this.since = h("p", { class: "note" });
    this.status = h("p", { class: "said", role: "status" });
    this.marks = new MarkTable();
    this.eventList = h("div", {}, h("p", { class: "note" }, "Loading …"));
    this.settings = new StreamSettings(store, name, {
      canWrite,
      signal: this.requests.signal,
      saved: () => this.refresh(),
    });
    this.spans = this.#spanButtons();
    this.element = this.#build();
    this.end = store.subscribe((change) => this.#note(change));
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.soon = undefined;
    this.timers = [setInterval(() => this.#variablesAgain(), VARIABLES_EVERY), setInterval(() => this.#tick(), 1000)];
  }

  shown() {
    this.refresh();
  }

  destroy() {
    this.end();
    this.requests.abort();
    this.timers.forEach(clearInterval);
    clearTimeout(this.soon);
    this.frame.cancel();
    this.chart.destroy();
    this.variables.destroy();
  }

  refresh() {
    this.#facts();
    this.#load();
    this.#loadEvents();
    this.#loadSettings();
  }

  get #stream() {
    return this.store.streams.get(this.name);
  }

  #build() {
    return h(
      "div",
      {},
      crumbs([["#/", "Fleet"]], this.name),
      h("div", { class: "heading" }, h("h1", { tabindex: -1 }, this.name), this.state),
      this.reason,
      this.values,
      section(
        "score",
        "Score",
        h("div", { class: "toolbar" }, this.spans, this.#steps()),
        this.chart.element,
        this.since,
        this.status,
      ),
      section(
        "variables",
        "Top variables",
        h("p", { class: "lead" }, "The variables with the largest share in the score, most unusual first."),
        this.variables.element,
      ),
      section("events", "Events", this.eventList),
      section("marks", "What each mark would have sent", this.marks.element),
      section("settings", "Settings", this.settings.element),
    );
  }

  #spanButtons() {
    const names = ["Live", ...SPANS.map(([name]) => name)];
    return h(
      "div",
      { class: "choice", role: "group", "aria-label": "Time range" },
      names.map((name) =>
        button(name, () => this.#choose(name), { "aria-pressed": String(name === "Live" && !this.zoom) }),
      ),
    );
  }

  /** What a drag does, for the keyboard and for phones. */
  #steps() {
    return h(
      "div",
      { class: "choice", role: "group", "aria-label": "Move and zoom" },
      button("← Earlier", () => this.#move(-0.5, 1)),
      button("Later →", () => this.#move(0.5, 1)),
      button("+", () => this.#move(0, 0.5), { "aria-label": "Zoom in" }),
      button("−", () => this.#move(0, 2), { "aria-label": "Zoom out" }),
    );
  }

  /** @param {number} by share of the width @param {number} factor of the width */
  #move(by, factor) {
    const { places } = this.chart.curves;
    if (places.length < 2) return;
    const whole = /** @type {[number, number]} */ ([places[0], places.at(-1)]);
    const [from, to] = this.zoom ?? this.chart.range ?? whole;
    const middle = (from + to) / 2 + by * (to - from);
    const half = (factor * (to - from)) / 2;
    this.#zoomTo(middle - half, middle + half);
  }

  /** @param {string} name */
  #choose(name) {
    this.zoom = null;
    this.follow = name;
    history.replaceState(null, "", `#/streams/${encodeURIComponent(this.name)}`);
    this.#load();
  }

  /** @param {number} from @param {number} to */
  #zoomTo(from, to) {
    this.zoom = [from, to];
    if (this.chart.curves.isTime)
      history.replaceState(
        null,
        "",
        `#/streams/${encodeURIComponent(this.name)}?from=${from.toFixed(3)}&to=${to.toFixed(3)}`,
      );
    this.#load();
  }

  /** Seconds that the chart shows while it follows, or null for all. */
  #span() {
    if (this.follow !== "Live")
      return /** @type {[string, number | null]} */ (SPANS.find(([name]) => name === this.follow))[1];
    const times = (this.#stream?.recent?.times ?? []).filter((time) => time !== null);
    const steps = times
      .slice(1)
      .map((time, k) => time - times[k])
      .sort((a, b) => a - b);
    return (steps[Math.floor(steps.length / 2)] || 1) * LIVE_POINTS;
  }

  /** @returns {{from?: number, to?: number}} */
  #range() {
    if (this.zoom) return { from: this.zoom[0], to: this.zoom[1] };
    const span = this.#span();
    const last = this.#stream?.last_time;
    return span === null || last == null ? {} : { from: last - span };
  }

  async #load() {
    for (const each of this.spans.children)
      each.setAttribute("aria-pressed", String(!this.zoom && each.textContent === this.follow));
    this.isLoading = true;
    const asked = { zoom: this.zoom, follow: this.follow };
    await this.#try(async () => {
      const scores = await get(
        path("v1/streams", [this.name, "scores"], { ...this.#range(), points: 1200 }),
        this.requests.signal,
      );
      if (asked.zoom !== this.zoom || asked.follow !== this.follow) return; // another range was chosen meanwhile
      this.#show(scores);
    });
    this.isLoading = false;
    await this.#loadVariables();
  }

  /** Fetch the scores once those of a message can be read: the service stores them a moment after it tells them. */
  #loadSoon() {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.#load(), STORED_AFTER);
  }

  /** @param {import("./types.js").Scores} scores */
  #show(scores) {
    const { places, isTime } = horizontal(scores.times, scores.steps);
    this.total = scores.total;
    this.chart.show({ places, isTime, scores: scores.scores, thresholds: scores.thresholds }, this.zoom);
    this.chart.mark(this.events);
    if (!this.zoom) this.chart.append([], this.#span());
    this.#say(scores.scores.length);
  }

  /** @param {number} drawn */
  #say(drawn) {
    if (!this.total)
      return setText(
        this.since,
        this.zoom
          ? "There are no scores in this range."
          : "There are no scores yet. The first comes once the detector has enough readings.",
      );
    const thinned =
      drawn < 0.9 * this.total
        ? `${count(drawn)} of ${count(this.total)} scores are drawn; the highest and lowest are kept. `
        : "";
    const axis = this.chart.isSteep ? "Above the threshold the axis is logarithmic. " : "";
    setText(
      this.since,
      `${thinned}${axis}${this.zoom ? "Choose Live to follow the newest reading." : "Drag across the chart or use + and − to zoom."}`,
    );
  }

  async #loadVariables() {
    await this.#try(async () => {
      const { times, variables } = await get(
        path("v1/streams", [this.name, "variables"], { ...this.#range(), top: 6 }),
        this.requests.signal,
      );
      this.variables.show(times, variables, this.#stretches(), "There is nothing to explain in this range.");
    });
  }

  #stretches() {
    return this.events
      .filter((event) => event.start_time !== null)
      .map((event) => ({
        start: /** @type {number} */ (event.start_time),
        stop: event.state === "open" ? Infinity : (event.stop_time ?? 0),
      }));
  }

  async #variablesAgain() {
    if (this.zoom || document.hidden || this.isAsking || this.#stream?.state === "paused") return;
    this.isAsking = true;
    await Promise.all([this.#loadVariables(), this.#loadCounts()]);
    this.isAsking = false;
    this.chart.describe();
  }

  /** Live messages do not count readings. */
  async #loadCounts() {
    await this.#try(async () => {
      const { readings, late, repeated } = await get(path("v1/streams", [this.name]), this.requests.signal);
      if (this.#stream) Object.assign(this.#stream, { readings, late, repeated });
    });
  }

  #tick() {
    tickDurations(this.eventList, this.events, this.store.now());
    this.frame.ask();
  }

  async #loadEvents() {
    await this.#try(async () => {
      const { events } = await get(path("v1/streams", [this.name, "events"], { limit: 100 }), this.requests.signal);
      this.events = events;
      this.#showEvents();
      await this.#loadMarks();
    });
  }

  /** What each mark would have sent in the last week of readings. */
  async #loadMarks() {
    const [stream, { events }] = await Promise.all([
      get(path("v1/streams", [this.name]), this.requests.signal),
      get(
        path("v1/streams", [this.name, "events"], { from: (this.#stream?.last_time ?? 0) - WEEK, limit: 1000 }),
        this.requests.signal,
      ),
    ]);
    this.marks.show(events, stream.settings?.alert_from);
  }

  #showEvents() {
    this.chart.mark(this.events);
    this.chart.describe();
    const none = h("p", { class: "note" }, "No event so far.");
    fill(
      this.eventList,
      this.events.length ? eventTable("Table of events", this.events, this.store.now(), false) : none,
    );
  }

  #loadSettings() {
    return this.#try(() => this.settings.load());
  }

  /** @param {import("./store.js").Change} change */
  #note(change) {
    if (change.kind === "scores") this.#append(change.scores[this.name]);
    else if (change.kind === "event" && change.event.stream === this.name) this.#noteEvent(change.event);
    else if (change.kind === "stream" && change.name === this.name && this.#stream) this.#loadSettings();
    this.frame.ask();
  }

  /** @param {import("./types.js").LiveScore | undefined} live */
  #append(live) {
    if (!live || this.zoom || this.isLoading || !this.chart.chart) return;
    if (live.points.length >= CUT_AT) return this.#loadSoon();
    this.total += live.points.length;
    this.chart.append(live.points, this.#span());
    const drawn = this.chart.curves.places.length;
    if (drawn > MOST_POINTS) this.#load();
    else if (this.total === live.points.length) this.#say(drawn);
  }

  /** @param {EventSummary} event */
  #noteEvent(event) {
    const others = this.events.filter(({ id }) => id !== event.id);
    this.events = [event, ...others].sort((a, b) => b.number - a.number);
    this.#showEvents();
  }

  #facts() {
    const stream = this.#stream;
    if (!stream) return;
    if (this.state.dataset.state !== stream.state) fill(this.state, icon(stream.state), STATES[stream.state]);
    this.state.dataset.state = stream.state;
    this.reason.hidden = !stream.reason;
    setText(this.reason, stream.reason ?? "");
    const pairs = values(stream, this.store.now());
    if (!this.values.firstElementChild) fill(this.values, facts("facts", pairs));
    this.values.querySelectorAll("dd").forEach((each, k) => setText(each, pairs[k][1]));
  }

  /** @param {() => Promise<void>} action */
  async #try(action) {
    try {
      await action();
    } catch (error) {
      if (this.requests.signal.aborted) return;
      this.status.className = "said failed";
      setText(this.status, error instanceof Error ? error.message : String(error));
    }
  }
}

/** @param {Stream} stream @param {number} now @returns {[string, string][]} */
function values(stream, now) {
  return [
    ["Score", number(stream.score)],
    ["Threshold", number(stream.threshold)],
    ["Budget used", percent(stream.budget_used)],
    ["Drift", stream.drift === null ? "–" : `${driftName(stream.drift)} (${stream.drift.toFixed(2)})`],
    ["Readings", count(stream.readings)],
    ["Last reading", stream.last_time === null ? "–" : moment(stream.last_time)],
    ["Received", ago(stream.last_received ?? stream.last_time, now)],
  ];
}
