// Detectors: the list, uploading and fitting one, and creating a stream.

import { answer, get, path, send } from "./api.js";
import { button, confirmed, fill, h, scroll, section } from "./dom.js";
import { field, form, input, saying } from "./forms.js";
import { counted, moment, percent, size } from "./format.js";
import { streamForm } from "./stream_form.js";

/** @typedef {import("./types.js").Detector} Detector */

const AGAIN = 1000; // ms between looks at a detector that is being fitted
const TYPES = /** @type {Record<string, string>} */ ({
  parquet: "application/vnd.apache.parquet",
  ndjson: "application/x-ndjson",
  jsonl: "application/x-ndjson",
});
const NUMBERS = new Set(["Variables", "Streams", "Size"]); // columns that are aligned at their right
const STATES = { ready: "Ready", fitting: "Fitting", failed: "Failed" };

export class DetectorsView {
  title = "Detectors";

  /** @param {import("./store.js").Store} store @param {{canWrite: boolean}} options */
  constructor(store, { canWrite }) {
    this.store = store;
    this.canWrite = canWrite;
    this.requests = new AbortController();
    this.list = h("div", {}, h("p", { class: "note" }, "Loading …"));
    this.said = h("p", { class: "said", role: "status" });
    this.create = h("div");
    this.names = "";
    this.element = h(
      "div",
      {},
      h("h1", { tabindex: -1 }, "Detectors"),
      section("list", "Fitted detectors", this.list, this.said),
      canWrite
        ? this.#forms()
        : h(
            "p",
            { class: "note" },
            "Your token can read but not write, so detectors and streams cannot be changed here.",
          ),
    );
  }

  shown() {
    this.refresh();
  }

  destroy() {
    clearTimeout(this.timer);
    this.requests.abort();
  }

  async refresh() {
    clearTimeout(this.timer);
    try {
      const { detectors } = await get("v1/detectors", this.requests.signal);
      this.#show(detectors);
    } catch (error) {
      if (!this.requests.signal.aborted)
        fill(this.list, h("p", { class: "warning" }, error instanceof Error ? error.message : String(error)));
    }
  }

  /** @param {Detector[]} detectors */
  #show(detectors) {
    fill(
      this.list,
      detectors.length
        ? this.#table(detectors)
        : h(
            "p",
            { class: "note" },
            "No detector yet. Fit one on readings of normal operation, or upload one that was saved elsewhere.",
          ),
    );
    const ready = detectors.filter(({ state }) => state === "ready").map(({ name }) => name);
    if (ready.join("\n") !== this.names || !this.create.firstChild) this.#offerStream(ready); // else a half-filled form would be lost
    if (detectors.some(({ state }) => state === "fitting")) this.timer = setTimeout(() => this.refresh(), AGAIN);
  }

  /** @param {string[]} ready */
  #offerStream(ready) {
    this.names = ready.join("\n");
    const open = (/** @type {import("./types.js").Stream} */ stream) => {
      this.store.apply({ kind: "stream", data: stream }); // the live message may come later
      location.hash = `#/streams/${encodeURIComponent(stream.name)}`;
    };
    fill(
      this.create,
      ready.length
        ? streamForm(ready, { done: open })
        : h("p", { class: "note" }, "A stream needs a detector; fit or upload one first."),
    );
  }

  /** @param {Detector[]} detectors */
  #table(detectors) {
    const names = ["Detector", "State", "Variables", "Streams", "Size", "Created"];
    const actions = this.canWrite && h("th", { scope: "col" }, h("span", { class: "unseen" }, "Actions"));
    const head = h(
      "tr",
      {},
      names.map((name) => h("th", { scope: "col", class: NUMBERS.has(name) ? "num" : null }, name)),
      actions,
    );
    return scroll(
      "Detectors",
      h(
        "table",
        { class: "records detectors" },
        h("thead", {}, head),
        h(
          "tbody",
          {},
          detectors.map((each) => this.#row(each)),
        ),
      ),
    );
  }

  /** @param {Detector} detector */
  #row(detector) {
    const { name, state, kind, variables, streams, bytes, created, error } = detector;
    return h("tr", {}, [
      cell("Detector", h("b", {}, name), h("span", { class: "aside" }, kind ?? "")),
      h(
        "td",
        { "data-name": "State", class: error ? "whole" : null },
        state === "fitting" ? fitting(detector) : h("span", { class: `tag ${state}` }, STATES[state]),
        error && h("span", { class: "aside" }, error),
      ),
      cell("Variables", variables.length ? h("span", { title: variables.join(", ") }, String(variables.length)) : "–"),
      cell("Streams", String(streams)),
      cell("Size", bytes === null ? "–" : size(bytes)),
      cell("Created", moment(created)),
      this.canWrite &&
        cell(
          "",
          button("Delete …", () => this.#delete(detector), {
            class: "plain",
            "aria-label": `Delete the detector ${name}`,
          }),
        ),
    ]);
  }

  /** @param {Detector} detector */
  async #delete({ name, streams }) {
    const used = streams ? ` ${counted(streams, "stream")} use it.` : "";
    if (!(await confirmed(`Delete the detector ${name}?${used} This cannot be undone.`, "Delete the detector"))) return;
    await saying(this.said, null, async () => {
      await send("DELETE", path("v1/detectors", [name]));
      await this.refresh();
      return `Deleted ${name}.`;
    });
  }

  #forms() {
    return h(
      "div",
      { class: "side" },
      section("fit", "Fit a detector", this.#fitForm()),
      section("upload", "Upload a detector", this.#uploadForm()),
      section("create", "Create a stream", this.create),
    );
  }

  #fitForm() {
    return form(
      "Fit",
      (values) => this.#fit(values),
      h(
        "p",
        { class: "lead" },
        "From a table of readings in normal operation: one column per variable, one row per time step.",
      ),
      field("Name", input({ name: "name", required: true, placeholder: "pump" })),
      field(
        "File",
        h("input", { name: "file", type: "file", required: true, accept: ".csv,.parquet,.ndjson,.jsonl" }),
        "CSV, Parquet or NDJSON",
      ),
      h(
        "details",
        {},
        h("summary", {}, "Options"),
        h(
          "div",
          { class: "fields" },
          field(
            "Time column",
            input({ name: "time_column", placeholder: "timestamp" }),
            "Empty: found by its name or type.",
          ),
          field("Gaps", input({ name: "gaps", placeholder: "forward-fill:5" }), "What to do about missing readings."),
          field("Threshold", input({ name: "threshold", placeholder: "budget:0.01" }), "The rule for alerts."),
          field("Resample", input({ name: "resample", placeholder: "60s:mean" })),
        ),
      ),
    );
  }

  /** @param {FormData} values */
  async #fit(values) {
    const file = /** @type {File} */ (values.get("file"));
    const name = String(values.get("name")).trim();
    const options = Object.fromEntries(
      ["time_column", "gaps", "threshold", "resample"].map((each) => [each, String(values.get(each)).trim()]),
    );
    const type = TYPES[file.name.split(".").at(-1)?.toLowerCase() ?? ""] ?? "text/csv";
    await answer("POST", path("v1/detectors", [name, "fit"], options), { body: file, type });
    await this.refresh();
    return `Fitting ${name}; the list shows its progress.`;
  }

  #uploadForm() {
    return form(
      "Upload",
      (values) => this.#upload(values),
      h("p", { class: "lead" }, "A file that cometad fit or detector.save wrote."),
      field("Name", input({ name: "name", required: true, placeholder: "pump" })),
      field("File", h("input", { name: "file", type: "file", required: true })),
    );
  }

  /** @param {FormData} values */
  async #upload(values) {
    const name = String(values.get("name")).trim();
    await answer("PUT", path("v1/detectors", [name]), {
      body: /** @type {File} */ (values.get("file")),
      type: "application/octet-stream",
    });
    await this.refresh();
    return `Uploaded ${name}.`;
  }
}

/** @param {Detector} detector */
function fitting({ name, progress }) {
  const bar = h("progress", { max: 1, value: progress, "aria-label": `Fitting ${name}` });
  return h("span", { class: "fitting" }, bar, percent(progress));
}

/** @param {string} name @param {...import("./dom.js").Child} content */
function cell(name, ...content) {
  return h("td", { "data-name": name, class: NUMBERS.has(name) ? "num" : null }, ...content);
}
