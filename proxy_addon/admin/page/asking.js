// Questions to the proxy and their answers as values: what goes wrong is an `error` for people, never an exception.

const ANSWER_WITHIN_MS = 15000;

export function hostPath(name) {
  return `api/hosts/${encodeURIComponent(name)}`;
}

// { ok: true, status, body } or { ok: false, status, error }; status 0: there was no answer.
export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {
      cache: "no-store", credentials: "omit", redirect: "error",
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS), ...options,
    });
    const text = await response.text();
    const body = JSON.parse(text);
    if (response.ok) return { ok: true, status: response.status, body };
    return { ok: false, status: response.status, error: body.error ?? text };
  } catch (fault) {
    if (response && !response.ok) {
      return { ok: false, status: response.status, error: `The proxy answered ${response.status}.` };
    }
    const did = options.method ? " Whether it has changed anything is not known." : "";
    return { ok: false, status: 0, error: `The proxy gave no answer (${fault.message}).${did}` };
  }
}
