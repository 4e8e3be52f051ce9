// The page: it listens to the proxy's events, keeps the newest status, and draws it anew each second, since the
// countdowns run on. How a part is drawn is in ladder.js, chart.js and operator.js; what it says, in words.js.

import { ask, hostPath } from "./asking.js";
import { drawChart } from "./chart.js";
import { find, set } from "./elements.js";
import { drawLadder, mostShown } from "./ladder.js";
import { drawOperator, openOperator } from "./operator.js";
import { because, clock, count, headline, isPaced, noneBecause, visible } from "./words.js";

const SILENT_MS = 60000; // nothing has changed for so long, or the connection is dead without a sign of it
const AGAIN_MS = [1000, 2000, 5000, 10000];
const ANNOUNCE_MS = 10000; // a screen reader is told no more often than this

let status = null;
let receivedMs = 0; // when the status came, by the browser's steady clock
let connected = false;
let lostAt = 0;
let failures = 0;
let source = null;
let next = 0; // the timer of the next drawing
let showAll = false;
let announced = "";
let announcedMs = -ANNOUNCE_MS;

// The proxy's time: the two clocks need not agree, and only the difference since the status came is added.
function proxyNow() {
  return status.at + (performance.now() - receivedMs) / 1000;
}

function listen() {
  source = new EventSource("api/events");
  source.addEventListener("status", (event) => take(JSON.parse(event.data)));
  source.addEventListener("error", listenAgain);
}

function take(newest) {
  status = newest;
  receivedMs = performance.now();
  failures = 0;
  connection(true);
  drawChart(status.recent);
  drawAbout();
  draw();
}

// Nothing has come for long: is the proxy still there?
async function lookOnce() {
  const heard = receivedMs;
  receivedMs = performance.now();
  status.at += (receivedMs - heard) / 1000;
  const { ok, body } = await ask("api/status");
  if (ok) take(body);
  else if (connected) listenAgain();
}

// The browser's own way of trying again gives up on some errors, and tells nothing of it.
function listenAgain() {
  source.close();
  connection(false);
  setTimeout(listen, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]);
  failures += 1;
}

function connection(up) {
  if (!up && status && connected) lostAt = proxyNow();
  const wasUp = connected;
  connected = up;
  const state = up ? "live" : status ? "lost" : "connecting";
  document.documentElement.dataset.connection = state;
  find("connection").dataset.state = state;
  set(find("connection"), { live: "Live", lost: "Connection lost", connecting: "Connecting" }[state]);
  find("lost").hidden = up;
  if (!up && (wasUp || !status)) {
    set(find("lost"), status
      ? `The connection to the proxy is lost. What you see is from ${clock(lostAt)}; it is tried again and again.`
      : "The proxy does not answer. It is tried again and again.");
  }
}

// The countdowns go on, also where nothing comes.
function tick() {
  if (!connected) return;
  if (performance.now() - receivedMs > SILENT_MS) lookOnce();
  draw();
}

function draw() {
  if (!status) return;
  clearTimeout(next);
  next = setTimeout(tick, 1000);
  const now = connected ? proxyNow() : lostAt;
  const paced = status.hosts.filter((host) => isPaced(host, now)).length;
  const title = headline(status, now);
  set(find("answer"), title);
  set(find("because"), status.hosts.length ? because(status.hosts[0], now) : noneBecause(status));
  document.title = paced ? `(${paced}) Paceproxy` : "Paceproxy";
  find("store-down").hidden = status.store_up;
  set(find("waiting"), status.waiting.toLocaleString("en"));
  set(find("in-flight"), status.in_flight.toLocaleString("en"));
  set(find("paced-hosts"), paced.toLocaleString("en"));
  set(find("healthy-hosts"), status.healthy_hosts.toLocaleString("en"));
  const filter = find("filter").value.trim().toLowerCase();
  const { matching, shown } = drawLadder(status, now, { filter, showAll, onHost: openOperator });
  drawFound(filter, matching);
  drawMore(filter, matching, shown);
  drawOperator(status.hosts, now);
  announce(title);
}

function drawFound(filter, matching) {
  set(find("found"), filter
    ? matching ? `${matching} of ${count(status.hosts.length, "host", "hosts")} shown.` : "No slow host has this in its name."
    : "");
  find("look-up").hidden = !filter || matching > 0;
  set(find("look-up-button"), `Look up ${visible(filter)}`);
}

function drawMore(filter, matching, shown) {
  const most = mostShown();
  find("more").hidden = Boolean(filter) || matching <= most;
  find("more-button").setAttribute("aria-expanded", String(showAll));
  set(find("more-button"), showAll ? `Show only the worst ${most}` : `Show all ${matching} hosts`);
}

function drawAbout() {
  const where = status.listening.length ? `listens at ${status.listening.join(", ")}` : "listens nowhere";
  const trust = status.ca_certificate ? ` Clients trust ${status.ca_certificate}.` : "";
  set(find("about"), `Paceproxy ${status.version} ${where}.${trust}`);
}

// How many hosts are paced is news; how many wait changes all the time.
function announce(title) {
  const news = status.store_up ? title.split(";")[0].replace(/\.$/, "") : "The store does not work";
  if (news === announced || performance.now() - announcedMs < ANNOUNCE_MS) return;
  const first = announced === "";
  announced = news;
  announcedMs = performance.now();
  if (!first) set(find("announcer"), `${news}.`);
}

find("no-script").remove();
find("filter").addEventListener("input", draw);
find("find").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!find("look-up").hidden) find("look-up-button").click();
});
find("look-up-button").addEventListener("click", async () => {
  const { ok, body, error } = await ask(hostPath(find("filter").value.trim()));
  if (ok) openOperator(body.host, find("filter"));
  else set(find("found"), error);
});
find("more-button").addEventListener("click", () => {
  showAll = !showAll;
  draw();
});

listen();
