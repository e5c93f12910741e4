// Score readings in Node with onnxruntime-node, without Python.
//
//     npm install --ignore-scripts
//     cometad export plant.comet -o plant.onnx --json > plant.json
//     node stream.mjs plant.onnx plant.json [STATE] < today.csv > scores.jsonl
//
// The header of the CSV names the variables, in any order. With a file STATE the stream goes on where it stopped.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import ort from "onnxruntime-node";

const [model, described, saved] = process.argv.slice(2);
const { variables: names, state: layout } = JSON.parse(readFileSync(described, "utf8"));
const session = await ort.InferenceSession.create(model, { intraOpNumThreads: 1 });

const tensor = (values, ...shape) => new ort.Tensor("float64", values, shape);
let state = new Float64Array(layout.size); // zeros start a new stream
if (saved && existsSync(saved)) {
  const bytes = readFileSync(saved);
  state = new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
}

let columns;
for await (const line of createInterface({ input: process.stdin })) {
  const cells = line.split(",");
  if (columns === undefined) {
    columns = names.map((name) => cells.indexOf(name));
    const missing = names.find((_, i) => columns[i] < 0);
    if (missing !== undefined) throw new Error(`The header has no column '${missing}'.`);
    continue;
  }
  const reading = Float64Array.from(columns, (column) => Number(cells[column] || NaN));
  const found = await session.run({
    reading: tensor(reading, 1, names.length),
    state: tensor(state, layout.size),
  });
  state = found.next_state.data;
  const scores = found.variable_scores.data;
  console.log(
    JSON.stringify({
      alert_score: found.alert_score.data[0], // null for a reading with an empty cell
      threshold: found.threshold.data[0],
      flag: found.flag.data[0],
      variable: names[scores.indexOf(Math.max(...scores))],
    }),
  );
}
if (saved) {
  writeFileSync(saved, Buffer.from(state.buffer, state.byteOffset, state.byteLength));
}
