// Elements of the page: finding, making, and changing their text only where it differs. Text is never markup.

export function find(id) {
  return document.getElementById(id);
}

export function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
