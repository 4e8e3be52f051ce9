// Print pages: `node with_fetch.mjs URL…`.
for (const url of process.argv.slice(2)) {
  const response = await fetch(url);
  process.stdout.write(await response.text());
}
