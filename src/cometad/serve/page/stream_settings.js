// The settings of a stream: shown, changed; and the buttons that pause and delete it.

import { get, path, send } from "./api.js";
import { button, confirmed, facts, fill, h, setText } from "./dom.js";
import { saying } from "./forms.js";
import { budgetName, count } from "./format.js";
import { streamForm } from "./stream_form.js";

/** @typedef {import("./types.js").Stream} Stream */

const NAMES = /** @type {Record<string, string>} */ ({
  period: "Period",
  resample: "Resample",
  late: "Late readings",
  merge_gap: "Merge gap",
  min_length: "Least length",
  hold_off: "Hold-off",
  longest: "Longest event",
  alert_from: "Alert from severity",
});

export class StreamSettings {
  /**
   * @param {import("./store.js").Store} store
   * @param {string} name
   * @param {{canWrite: boolean, signal: AbortSignal, saved: () => void}} options
   */
  constructor(store, name, { canWrite, signal, saved }) {
    this.store = store;
    this.name = name;
    this.signal = signal;
    this.saved = saved;
    this.isPaused = false;
    this.facts = h("div", {}, h("p", { class: "note" }, "Loading …"));
    this.said = h("p", { class: "said", role: "status" });
    this.toggle = button("Pause", () => this.#pause());
    this.form = h("details", {}, h("summary", {}, "Change the settings"));
    const remove = button("Delete …", () => this.#delete(), { class: "danger" });
    const buttons = h("div", { class: "buttons" }, this.toggle, remove);
    this.element = h("div", {}, this.facts, canWrite && [buttons, this.said, this.form]);
  }

  async load() {
    const [stream, { detectors }] = await Promise.all([
      get(path("v1/streams", [this.name]), this.signal),
      get("v1/detectors", this.signal),
    ]);
    this.#show(stream);
    if (!this.form.open) this.#offerForm(stream, detectors); // else a half-filled form would be lost
  }

  /** @param {Stream} stream */
  #show(stream) {
    const others = Object.entries(stream.settings ?? {}).filter(([name]) => name in NAMES);
    const pairs = /** @type {[string, string][]} */ ([
      ["Detector", stream.detector],
      ["Budget", [budgetName(stream.budget), stream.budget_reduced].filter(Boolean).join(". ")],
      ["Variables", (stream.variables ?? []).join(", ") || "–"],
      ...others.map(([name, value]) => [NAMES[name], value === null ? "–" : String(value)]),
      ["Late so far", count(stream.late)],
      ["Repeated so far", count(stream.repeated)],
    ]);
    fill(this.facts, facts("settings", pairs));
    this.isPaused = stream.state === "paused";
    setText(this.toggle, this.isPaused ? "Resume" : "Pause");
  }

  /** @param {Stream} stream @param {import("./types.js").Detector[]} detectors */
  #offerForm({ settings }, detectors) {
    const ready = detectors.filter(({ state }) => state === "ready").map(({ name }) => name);
    const form = streamForm(ready, { name: this.name, settings, done: () => this.saved() });
    fill(this.form, h("summary", {}, "Change the settings"), form);
  }

  #pause() {
    return saying(this.said, this.toggle, async () => {
      await send("POST", path("v1/streams", [this.name, this.isPaused ? "resume" : "pause"]));
      await this.load();
      return "";
    });
  }

  async #delete() {
    const question = `Delete the stream ${this.name} with its scores and events? This cannot be undone.`;
    if (!(await confirmed(question, "Delete the stream"))) return;
    await saying(this.said, null, async () => {
      await send("DELETE", path("v1/streams", [this.name]));
      location.hash = "#/";
      this.store.apply({ kind: "stream", data: { name: this.name, deleted: true } }); // the live message may come later
      return "Deleted.";
    });
  }
}
