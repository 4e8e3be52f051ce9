// Print pages: `node with_axios.cjs URL…`. The library is found by NODE_PATH, which ES modules do not look at.
const axios = require("axios");

(async () => {
  for (const url of process.argv.slice(2)) {
    const response = await axios.get(url);
    process.stdout.write(response.data);
  }
})();
