"use strict";

const status = document.getElementById("status");

new EventSource("api/events").addEventListener("status", (event) => {
  status.textContent = event.data;
});
