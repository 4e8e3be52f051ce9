// The ladder: its rungs from the slowest down, and on each its hosts. An element stays the same for as long as its
// host is shown, so that a live update takes neither focus nor scroll position from under the user.

import { element, find, set } from "./elements.js";
import { clock, count, duration, isBlocked, isPaused, next, nextSlotAt, reason, visible } from "./words.js";

const MOST_SHOWN = 24; // hosts at once, the worst, until all are asked for
const MOST_DOTS = 20; // waiters drawn one by one

let rungs = [];
let drawnFor = "";
const cards = new Map(); // by host

// `onHost(name, button)` is called when the user wants to change a host.
export function drawLadder(status, now, { filter, showAll, onHost }) {
  if (drawnFor !== String(status.ladder)) make(status.ladder);
  const matching = filter ? status.hosts.filter((host) => host.host.includes(filter)) : status.hosts;
  const shown = showAll || filter ? matching : matching.slice(0, MOST_SHOWN);
  keepingPlace(() => {
    forget(new Set(shown.map((host) => host.host)));
    const places = rungs.map((rung) => rung.hosts.firstElementChild);
    for (const host of shown) {
      const on = rungOf(host);
      const card = cards.get(host.host) ?? makeCard(host.host, onHost);
      if (places[on] === card.root) places[on] = card.root.nextElementSibling;
      else put(rungs[on].hosts, card.root, places[on]);
      drawCard(card, host, now);
    }
    const numbers = tally(matching);
    const visibly = tally(shown);
    rungs.forEach((rung, i) => {
      rung.root.classList.toggle("empty", numbers[i] === 0);
      set(rung.number, numbers[i] ? `, ${count(numbers[i], "host", "hosts")}` : ", no host");
      const rest = numbers[i] - visibly[i];
      set(rung.rest, rest ? `and ${count(rest, "host", "hosts")} more on this rung` : "");
    });
    drawHealthy(status);
    find("ladder").classList.toggle("crowded", shown.length > MOST_SHOWN);
  });
  return { matching: matching.length, shown: shown.length };
}

export function mostShown() {
  return MOST_SHOWN;
}

function make(ladder) {
  drawnFor = String(ladder);
  cards.clear();
  rungs = ladder.map((pace, i) => {
    const root = element("li", "rung");
    root.dataset.heat = String(Math.round((4 * i) / (ladder.length - 1)));
    const title = element("h3", "pace", duration(pace));
    const number = element("span", "for-screen-readers");
    title.append(number);
    const hosts = element("ul", "hosts");
    const rest = element("p", "rest");
    root.append(title, hosts, rest);
    return { root, number, hosts, rest };
  });
  const healthy = element("p", "healthy");
  healthy.id = "healthy";
  rungs[0].root.append(healthy);
  find("ladder").replaceChildren(...rungs.map((rung) => rung.root).reverse());
}

// The index of the rung on which a host is drawn: another process may have a longer ladder.
function rungOf(host) {
  return Math.min(host.rung, rungs.length - 1);
}

function tally(hosts) {
  const numbers = rungs.map(() => 0);
  for (const host of hosts) numbers[rungOf(host)] += 1;
  return numbers;
}

function drawHealthy(status) {
  const healthy = status.healthy_hosts;
  set(find("healthy"), healthy ? `${count(healthy, "healthy host", "healthy hosts")}, asked without any wait`
    : "Healthy hosts stand here: they are asked without any wait");
}

function makeCard(name, onHost) {
  const card = {
    root: element("li", "host"),
    name: element("bdi", "name"),
    reason: element("p", "reason"),
    tags: element("span", "tags"),
    line: element("p", "line"),
    dots: element("span", "dots"),
    waiting: element("span", "waiting"),
    next: element("p", "next"),
    nextText: element("span"),
    bar: element("span", "bar"),
    button: element("button", "change", "Change"),
    waiters: -1,
    part: null,
  };
  card.name.dir = "ltr";
  // A long name may be broken after a dot.
  visible(name).split(/(?<=\.)/).forEach((label) => card.name.append(label, element("wbr")));
  card.button.type = "button";
  card.button.setAttribute("aria-haspopup", "dialog");
  card.button.setAttribute("aria-label", `Change ${visible(name)}`);
  card.button.addEventListener("click", () => onHost(name, card.button));
  card.dots.setAttribute("aria-hidden", "true");
  card.bar.setAttribute("aria-hidden", "true");
  const title = element("p", "title");
  title.append(card.name, card.tags);
  card.line.append(card.dots, card.waiting);
  card.next.append(card.nextText, card.bar);
  const what = element("div", "what");
  what.append(title, card.reason);
  card.root.append(what, card.line, card.next, card.button);
  cards.set(name, card);
  return card;
}

function drawCard(card, host, now) {
  set(card.reason, reason(host, now));
  const tags = [];
  if (isPaused(host, now)) tags.push(`paused until ${clock(host.paused_until)}`);
  if (isBlocked(host, now)) tags.push(`blocked until ${clock(host.blocked_until)}`);
  if (host.floor_s > 0) tags.push(`floor ${duration(host.floor_s)}`);
  set(card.tags, tags.join(" · "));
  card.root.classList.toggle("held", isPaused(host, now) || isBlocked(host, now));
  if (card.waiters !== host.waiting) {
    card.waiters = host.waiting;
    set(card.waiting, host.waiting ? `${host.waiting.toLocaleString("en")} waiting` : "nobody waits");
    const dots = Math.min(host.waiting, MOST_DOTS);
    while (card.dots.childElementCount > dots) card.dots.lastElementChild.remove();
    while (card.dots.childElementCount < dots) card.dots.append(element("i"));
    card.dots.classList.toggle("longer", host.waiting > MOST_DOTS);
  }
  set(card.nextText, next(host, now));
  // How much of the wait is left. A property that is set by a script is no inline style to the browser's policy.
  const wait = Math.max(host.pace_s, 1);
  const part = Math.min(1, Math.max(0, (nextSlotAt(host) - now) / wait)).toFixed(2);
  if (card.part !== part) card.bar.style.setProperty("--left", part);
  card.part = part;
}

// Moving an element takes the focus from what is in it, where the browser cannot move it as a whole.
function put(list, root, before) {
  const focused = root.isConnected && root.contains(document.activeElement) ? document.activeElement : null;
  if (root.isConnected && list.moveBefore) list.moveBefore(root, before);
  else list.insertBefore(root, before);
  if (focused && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

function forget(kept) {
  for (const [name, card] of cards) {
    if (kept.has(name)) continue;
    cards.delete(name);
    const neighbour = card.root.nextElementSibling ?? card.root.previousElementSibling;
    const hadFocus = card.root.contains(document.activeElement);
    card.root.remove();
    if (hadFocus) (neighbour?.querySelector("button") ?? find("ladder-title")).focus({ preventScroll: true });
  }
}

// What the user is at stays where it is on the screen, whatever comes or goes above it: what has the focus, else what
// is at a third of the window's height. At the top of the page nothing is held.
function keepingPlace(change) {
  const focused = document.activeElement?.closest(".host, .more");
  const at = focused && isOnScreen(focused) ? focused
    : scrollY > 0 && document.elementFromPoint(innerWidth / 2, innerHeight / 3)?.closest(".host");
  const before = at && at.getBoundingClientRect().top;
  change();
  if (!at?.isConnected) return;
  const moved = at.getBoundingClientRect().top - before;
  if (Math.abs(moved) >= 1) scrollBy({ top: moved, behavior: "instant" });
}

function isOnScreen(node) {
  const { top, bottom } = node.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}
