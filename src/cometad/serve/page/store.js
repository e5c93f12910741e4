// What the page knows about the streams, kept up to date by live messages.

/** @typedef {import("./types.js").Stream} Stream */
/** @typedef {import("./types.js").EventSummary} EventSummary */
/** @typedef {import("./types.js").LiveScore} LiveScore */
/**
 * @typedef {{kind: "all"}
 *   | {kind: "scores", scores: Record<string, LiveScore>}
 *   | {kind: "event", event: EventSummary & {change: string}, isNews: boolean}
 *   | {kind: "stream", name: string}} Change
 */

export const RECENT = 60; // scores kept for each sparkline

export class Store {
  constructor() {
    /** @type {Map<string, Stream>} */
    this.streams = new Map();
    this.ahead = 0; // seconds by which the clock of the service is ahead of this one
    /** @type {Set<(change: Change) => void>} */
    this.listeners = new Set();
  }

  /** @param {(change: Change) => void} listener @returns {() => void} a function that ends it */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** The time on the clock of the service, in epoch seconds. */
  now() {
    return Date.now() / 1000 + this.ahead;
  }

  /** @param {Stream[]} streams */
  replace(streams) {
    this.streams = new Map(streams.map((stream) => [stream.name, stream]));
    this.#tell({ kind: "all" });
  }

  /** @param {import("./live.js").Message} message */
  apply({ kind, data }) {
    if (kind === "scores") this.#scores(data);
    else if (kind === "event") this.#event(data);
    else if (kind === "stream") this.#stream(data);
  }

  /** @param {{at: number, streams: Record<string, LiveScore>}} message */
  #scores({ at, streams }) {
    this.ahead = at - Date.now() / 1000;
    for (const [name, live] of Object.entries(streams)) {
      const stream = this.streams.get(name);
      if (stream) update(stream, live, at);
    }
    this.#tell({ kind: "scores", scores: streams });
  }

  /** @param {EventSummary & {change: string}} event */
  #event(event) {
    const stream = this.streams.get(event.stream);
    const known = stream?.open_event;
    const wasNotice = known?.id === event.id && known.level === "notice";
    const isNews = event.level === "alert" && (event.change === "opened" || wasNotice);
    if (stream) {
      if (event.state === "open") stream.open_event = event;
      else if (stream.open_event?.id === event.id) stream.open_event = null;
      if (event.change === "opened") stream.events += 1;
      if (stream.state === "normal" || stream.state === "event") stream.state = stream.open_event ? "event" : "normal";
    }
    this.#tell({ kind: "event", event, isNews });
  }

  /** @param {Stream & {deleted?: boolean}} stream */
  #stream(stream) {
    if (stream.deleted) this.streams.delete(stream.name);
    else this.streams.set(stream.name, { ...stream, recent: stream.recent ?? this.streams.get(stream.name)?.recent });
    this.#tell({ kind: "stream", name: stream.name });
  }

  /** @param {Change} change */
  #tell(change) {
    for (const listener of this.listeners) listener(change);
  }
}

/** @param {Stream} stream @param {LiveScore} live @param {number} at */
function update(stream, live, at) {
  const { points, time, ...rest } = live;
  Object.assign(stream, rest);
  stream.last_time = time;
  stream.last_received = at;
  stream.readings += points.length; // about: a message holds at most the last 120
  stream.recent ??= { times: [], scores: [], thresholds: [] };
  const { times, scores, thresholds } = stream.recent;
  for (const [when, score, threshold] of points.slice(-RECENT)) {
    times.push(when);
    scores.push(score);
    thresholds.push(threshold);
  }
  for (const list of [times, scores, thresholds]) list.splice(0, list.length - RECENT);
}
