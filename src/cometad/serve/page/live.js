// The live connection: server-sent events over fetch, because EventSource cannot send a token.

import { ApiError, answer } from "./api.js";

const FIRST_WAIT = 500,
  LONGEST_WAIT = 15_000; // ms between attempts
const SILENCE = 40_000; // ms without a byte after which a connection is taken for dead; the service sends one every 15 s

/** @typedef {{state: "connecting" | "live"} | {state: "lost", retryAt: number}} Status */
/** @typedef {{kind: string, data: any}} Message */

export class Live {
  /** @param {{onMessage: (message: Message) => void, onStatus: (status: Status) => void}} listeners */
  constructor({ onMessage, onStatus }) {
    this.onMessage = onMessage;
    this.onStatus = onStatus;
    this.attempts = 0;
    this.timer = 0;
    /** @type {AbortController | null} */
    this.connection = null;
  }

  start() {
    this.stop();
    this.connection = new AbortController();
    this.#run(this.connection);
  }

  stop() {
    clearTimeout(this.timer);
    this.connection?.abort();
    this.connection = null;
  }

  /** @param {AbortController} connection */
  async #run(connection) {
    try {
      const response = await answer("GET", "v1/live", { signal: connection.signal });
      this.attempts = 0;
      this.onStatus({ state: "live" });
      await this.#read(response, connection);
    } catch (error) {
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return;
    }
    if (connection === this.connection) this.#retry();
  }

  /** @param {Response} response @param {AbortController} connection */
  async #read(response, connection) {
    const parser = new Parser(this.onMessage);
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const watchdog = setTimeout(() => reader.cancel(), SILENCE);
      const { done, value } = await reader.read();
      clearTimeout(watchdog);
      if (done || connection !== this.connection) return;
      parser.push(decoder.decode(value, { stream: true }));
    }
  }

  #retry() {
    const longest = Math.min(FIRST_WAIT * 2 ** this.attempts, LONGEST_WAIT);
    const wait = longest * (0.75 + 0.25 * Math.random()); // spreads the pages that lost one service
    this.attempts += 1;
    this.onStatus({ state: "lost", retryAt: Date.now() + wait });
    this.timer = setTimeout(() => this.start(), wait);
  }
}

/** Server-sent events from text that arrives in pieces. */
export class Parser {
  /** @param {(message: Message) => void} onMessage */
  constructor(onMessage) {
    this.onMessage = onMessage;
    this.rest = "";
  }

  /** @param {string} text */
  push(text) {
    const blocks = (this.rest + text.replaceAll("\r", "")).split("\n\n");
    this.rest = /** @type {string} */ (blocks.pop());
    for (const block of blocks) this.#read(block);
  }

  /** @param {string} block */
  #read(block) {
    let kind = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) kind = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5));
    }
    if (data.length) this.onMessage({ kind, data: JSON.parse(data.join("\n")) });
  }
}
