// Score readings in Node with onnxruntime-node, without Python.
//
//     npm install --ignore-scripts
//     cometad export plant.comet -o plant.onnx --json > plant.json
//     node stream.mjs plant.onnx plant.json [STATE] < today.csv > scores.jsonl
//
// The header of the CSV, which has no quotes, names the variables, in any order. A reading with a cell that is not a
// finite number gets no score. If MODEL has a season, the column 'time' has local times like 2026-03-01 12:00:00. With a
// file STATE, a stream continues where the last one ended.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import ort from "onnxruntime-node";

const stop = (sentence) => {
  console.error(sentence);
  process.exit(1);
};

const [model, described, saved, ...others] = process.argv.slice(2);
if (!described || others.length) stop("Usage: node stream.mjs MODEL.onnx MODEL.json [STATE] < READINGS.csv");
const { variables: names, state: layout, timezone } = JSON.parse(readFileSync(described, "utf8"));
const session = await ort.InferenceSession.create(model, { intraOpNumThreads: 1 });

const tensor = (values, ...shape) => new ort.Tensor("float64", values, shape);
const number = (cell) => (cell?.trim() ? Number(cell) : NaN); // Number(" ") would be 0
// A local time as seconds since 1970; NaN if it is not a time.
const seconds = (cell) => Date.parse(`${cell?.trim().replace(/(Z|[+-]\d\d:\d\d)$/, "").replace(" ", "T")}Z`) / 1000;
let state = new Float64Array(layout.size); // zeros start a new stream
if (saved && existsSync(saved)) {
  const bytes = readFileSync(saved);
  if (bytes.byteLength !== layout.bytes) stop(`'${saved}' is not a state of '${model}'. Delete it to start anew.`);
  state = new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
}

let columns, time;
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "") continue;
  const cells = line.split(",");
  if (columns === undefined) {
    cells[0] = cells[0].replace(/^\uFEFF/, ""); // the byte order mark
    columns = names.map((name) => cells.indexOf(name));
    time = cells.indexOf("time");
    const missing = names.find((_, i) => columns[i] < 0) ?? (timezone && time < 0 ? "time" : undefined);
    if (missing !== undefined) stop(`The header has no column '${missing}'.`);
    continue;
  }
  const reading = Float64Array.from(columns, (column) => number(cells[column]));
  const found = await session.run({
    reading: tensor(reading, 1, names.length),
    state: tensor(state, layout.size),
    ...(timezone && { time: tensor(Float64Array.of(seconds(cells[time])), 1) }),
  });
  state = found.next_state.data;
  const score = found.alert_score.data[0];
  const scores = found.variable_scores.data;
  console.log(
    JSON.stringify({
      alert_score: score, // NaN, for a reading without a score, becomes null
      threshold: found.threshold.data[0],
      flag: found.flag.data[0],
      variable: Number.isNaN(score) ? null : names[scores.indexOf(Math.max(...scores))],
    }),
  );
}
if (saved) {
  writeFileSync(`${saved}.new`, Buffer.from(state.buffer, state.byteOffset, state.byteLength));
  renameSync(`${saved}.new`, saved); // so that a program killed here leaves a whole state
}
