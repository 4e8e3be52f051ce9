// What went through in the last 10 minutes: a bar for each step, and the same in words and as a table.

import { find, set } from "./elements.js";
import { clock, count, duration, passed } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 96;
const PARTS = ["served", "saved", "failed"]; // from the bottom up
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

let bars = [];

export function drawChart(recent) {
  const steps = recent.served.length;
  // Of those served, the saved ones are drawn apart.
  const plain = recent.served.map((served, i) => Math.max(0, served - recent.saved[i]));
  const heights = { served: plain, saved: recent.saved, failed: recent.failed };
  const peak = Math.max(1, ...plain.map((n, i) => n + recent.saved[i] + recent.failed[i]));
  if (bars.length !== steps) make(steps);
  bars.forEach((bar, i) => {
    let top = HEIGHT;
    for (const part of PARTS) {
      const number = heights[part][i];
      const height = number ? Math.max(2, (number / peak) * (HEIGHT - 6)) : 0;
      top -= height;
      bar[part].setAttribute("y", top.toFixed(2));
      bar[part].setAttribute("height", height.toFixed(2));
    }
  });
  const total = Object.fromEntries(["served", "failed", "saved", "waited_s"].map((key) => [key, sum(recent[key])]));
  for (const part of PARTS) set(find(part), total[part].toLocaleString("en"));
  set(find("recent-words"), passed(total));
  set(find("peak"), `peak ${count(peak, "request", "requests")} in ${recent.step_s} s`);
  find("peak").hidden = total.served + total.failed === 0;
  minutes(recent);
}

function make(steps) {
  const width = 360 / steps;
  const groups = PARTS.map((part) => {
    const group = document.createElementNS(SVG, "g");
    group.setAttribute("class", part);
    return group;
  });
  bars = Array.from({ length: steps }, (_, i) => Object.fromEntries(PARTS.map((part, p) => {
    const bar = document.createElementNS(SVG, "rect");
    bar.setAttribute("x", (i * width + 0.5).toFixed(2));
    bar.setAttribute("width", (width - 1).toFixed(2));
    groups[p].append(bar);
    return [part, bar];
  })));
  find("chart").replaceChildren(...groups);
}

function minutes(recent) {
  const per = Math.max(1, Math.round(60 / recent.step_s));
  const rows = [];
  for (let end = recent.served.length; end > 0; end -= per) {
    const of = (key) => sum(recent[key].slice(Math.max(0, end - per), end));
    const until = recent.until - (recent.served.length - end) * recent.step_s;
    const from = until - per * recent.step_s;
    rows.push([`${clock(from)}`, of("served"), of("saved"), of("failed"), duration(of("waited_s"))]);
  }
  const body = find("minutes");
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    cells.forEach((cell, j) => set(row.cells[j] ?? row.insertCell(), String(cell)));
  });
}
