// What an operator does to a host: a dialog with three changes, each a POST, and what came of it in words.

import { ask, hostPath } from "./asking.js";
import { find, set } from "./elements.js";
import { done, reason, visible } from "./words.js";

const dialog = find("operator");

let shown = null; // the host's name
let opener = null;
let token = null; // in memory only
let refused = null; // the change that wants a token
let busy = false;

export function openOperator(name, from) {
  shown = name;
  opener = from;
  set(find("operator-host"), visible(name));
  say("", "");
  askForToken(false);
  dialog.showModal();
  find("operator-host").focus();
}

// The host as it is now; null: it is no longer among those that are slow.
export function drawOperator(hosts, now) {
  if (!dialog.open) return;
  const host = hosts.find((one) => one.host === shown);
  set(find("operator-state"), host ? `${reason(host, now)}.` : "It is not being paced.");
}

async function change(wish) {
  if (busy) return;
  busy = true;
  dialog.setAttribute("aria-busy", "true");
  say("", "");
  const headers = { "Content-Type": "application/json", "Pace-Admin": "change" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const { host, ...body } = wish;
  const answer = await ask(hostPath(host), { method: "POST", headers, body: JSON.stringify(body) });
  busy = false;
  dialog.removeAttribute("aria-busy");
  if (shown !== host) return; // the dialog is about another host by now
  if (answer.ok) {
    askForToken(false);
    say(done(wish.action, answer.body), "");
  } else if (answer.status === 401) {
    token = null;
    refused = wish;
    askForToken(true);
    say("", answer.error);
  } else {
    say("", answer.error);
  }
}

function say(good, bad) {
  set(find("operator-done"), good);
  set(find("operator-error"), bad);
}

function askForToken(wanted) {
  const form = find("operator-token");
  form.hidden = !wanted;
  find("token").value = "";
  if (wanted) find("token").focus();
}

function on(id, wish) {
  find(id).addEventListener("submit", (event) => {
    event.preventDefault();
    change({ host: shown, ...wish() });
  });
}

on("operator-resume", () => ({ action: "resume" }));
on("operator-pause", () => ({ action: "pause", seconds: find("pause-seconds").valueAsNumber }));
on("operator-floor", () => ({ action: "floor", seconds: find("floor-seconds").valueAsNumber }));

find("operator-token").addEventListener("submit", (event) => {
  event.preventDefault();
  token = find("token").value.trim();
  if (refused) change(refused);
});

find("operator-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // the backdrop
});
dialog.addEventListener("close", () => {
  shown = refused = null;
  // The host may have left the ladder, and its button with it.
  (opener?.isConnected ? opener : find("ladder-title")).focus({ preventScroll: true });
});
