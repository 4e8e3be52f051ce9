// What the page says, in words: pure functions from the proxy's status to text. Times are seconds, `now` is the
// proxy's own. Nothing here touches the document.

const WHY = {
  http_response_timeout: "it gave no answer in time",
  connection_timeout: "it could not be connected to in time",
  connection_terminated: "it closed the connection without an answer",
  connection_refused: "it refused the connection",
  http_response_incomplete: "it cut an answer short",
  http_request_timeout: "it stopped taking an upload",
  dns_timeout: "its name could not be looked up",
  http_status_5xx: "it answered with a server error",
  rate_limited: "it answered 429, too many requests",
  http_status: "it answered with a status that counts as a stall",
  in_progress: "it was still busy with the same request",
};

export function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

// "4 s", "0.25 s", "3 min 20 s", "2 h 5 min". A number and its unit stay on one line.
export function duration(seconds) {
  if (seconds < 10) return unit(Number(seconds.toFixed(seconds < 1 ? 2 : 1)), "s");
  const whole = Math.round(seconds);
  if (whole < 100) return unit(whole, "s");
  const [big, small, bigUnit, smallUnit] = whole < 3600
    ? [Math.floor(whole / 60), whole % 60, "min", "s"]
    : [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), "h", "min"];
  return small ? `${unit(big, bigUnit)} ${unit(small, smallUnit)}` : unit(big, bigUnit);
}

function unit(number, name) {
  return `${number.toLocaleString("en")}\u00a0${name}`;
}

// What is left, in whole seconds: a number that counts down has no use for tenths.
export function left(until, now) {
  return duration(Math.max(1, Math.ceil(until - now)));
}

export function ago(at, now) {
  const past = Math.round(now - at);
  if (past < 1) return "just now";
  // Of what is long past nobody asks for the seconds.
  return `${duration(past < 100 ? past : 60 * Math.round(past / 60))} ago`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

// A host's name is the crawl's own text: what cannot be seen, or turns the text around it, is written out.
export function visible(name) {
  return name.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

export function why(error) {
  return WHY[error] ?? `its last attempt ended with ${visible(error)}`;
}

export function isPaused(host, now) {
  return (host.paused_until ?? 0) > now;
}

export function isBlocked(host, now) {
  return (host.blocked_until ?? 0) > now;
}

// Something of the host itself keeps it slow: not only the number of requests at once.
export function isPaced(host, now) {
  return host.pace_s > 0 || isPaused(host, now) || isBlocked(host, now);
}

export function nextSlotAt(host) {
  return Math.max(host.next_slot_at ?? 0, host.blocked_until ?? 0, host.paused_until ?? 0);
}

export function next(host, now) {
  const at = nextSlotAt(host);
  if (at - now > 0) return `next in ${left(at, now)}`;
  return host.waiting ? "next one now" : "the next one at once";
}

function since(host, now) {
  return host.last_stall ? `${why(host.last_stall.error)} ${ago(host.last_stall.at, now)}` : "";
}

// Why a host is slow, without its name: one line.
export function reason(host, now) {
  const stalled = since(host, now);
  const held = isPaused(host, now) || isBlocked(host, now);
  if (stalled && (held || host.rung > 0)) return stalled[0].toUpperCase() + stalled.slice(1);
  if (isPaused(host, now)) return "Nothing is sent to it for a while";
  if (isBlocked(host, now)) return "It asked to be left alone";
  if (host.rung > 0) return "It has stalled before";
  if (host.floor_s > 0) return "An operator has set a floor";
  if (host.pace_s > 0) return "Its own quota bears no more";
  if (host.in_flight_limit !== null) return `It is asked at most ${host.in_flight_limit} at a time`;
  return "It has recovered; its requests go out step by step";
}

// The same as whole sentences that name the host: the answer at the top of the page.
export function because(host, now) {
  const name = visible(host.host);
  const stalled = since(host, now);
  const last = stalled ? ` The last time it was asked, ${stalled}.` : "";
  if (isPaused(host, now))
    return `${name} is paused: nothing is sent to it until ${clock(host.paused_until)}, for another ${left(host.paused_until, now)}.${last}`;
  if (isBlocked(host, now))
    return `${name} asked to be left alone until ${clock(host.blocked_until)}, for another ${left(host.blocked_until, now)}.${last}`;
  if (host.pace_s > 0) {
    const at = nextSlotAt(host);
    const then = at - now > 0 ? `next request in ${left(at, now)}` : "the next request may go at once";
    const cause = host.rung > 0 ? (stalled ? ` since ${stalled}` : " since it has stalled")
      : host.floor_s > 0 ? ", as an operator has set it" : ", as its own quota bears no more";
    return `${name} is asked once every ${duration(host.pace_s)}${cause}; ${then}.`;
  }
  if (host.in_flight_limit !== null)
    return `${name} is asked at most ${host.in_flight_limit} at a time; ${count(host.waiting, "request waits", "requests wait")} for one of them to end.`;
  return `${name} has recovered; its requests go out step by step.`;
}

export function headline(status, now) {
  const paced = status.hosts.filter((host) => isPaced(host, now)).length;
  const waits = count(status.waiting, "request waits", "requests wait");
  if (paced) return `${count(paced, "host is", "hosts are")} being paced; ${status.waiting ? waits : "nothing waits"}.`;
  return status.waiting ? `No host is being paced; ${waits}.` : "Nothing is slow.";
}

export function noneBecause(status) {
  const healthy = count(status.healthy_hosts, "host was", "hosts were");
  return status.healthy_hosts
    ? `${healthy} asked in the last 10 minutes, and nothing is held back.`
    : "Nothing was asked for in the last 10 minutes.";
}

// Of the last 10 minutes.
export function passed({ served, failed, saved, waited_s }) {
  if (!served && !failed) return "Nothing went through.";
  const rescued = saved
    ? `${count(saved, "request was", "requests were")} served after a stall: without another attempt ${saved === 1 ? "it" : "they"} would have failed.`
    : "No request was served after a stall.";
  return waited_s < 0.5 ? rescued : `${rescued} All requests together waited ${duration(waited_s)}.`;
}

// What an operator's change has come to, from the host as it is then.
export function done(action, host) {
  const name = visible(host.host);
  const floor = host.floor_s > 0 ? `asked at most once every ${duration(host.floor_s)}` : "";
  if (action === "resume") return `${name} is resumed: ${floor || "its requests go out again"}.`;
  if (action === "pause") return `${name} is paused until ${clock(host.paused_until)}.`;
  return floor ? `${name} is ${floor} from now on.` : `${name} has no floor any more.`;
}
