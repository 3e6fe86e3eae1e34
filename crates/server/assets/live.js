// Puts what the event stream says into the page. Without it the page stands
// still, and all else works.
"use strict";

(() => {
  const place = document.querySelector("[data-stream]");
  if (!place || !window.EventSource) return;
  const status = document.getElementById("stream");
  const tones = ["good", "idle", "warn", "bad"];
  // A name may be on the page twice: among the problems, and in the list.
  const all = (attribute, name) =>
    document.querySelectorAll(`[${attribute}="${CSS.escape(name)}"]`);

  const put = (said) => {
    for (const [name, text] of said.texts) {
      for (const element of all("data-live", name)) {
        if (element.textContent !== text) element.textContent = text;
      }
    }
    for (const [name, tone] of said.tones) {
      for (const element of all("data-tone", name)) {
        element.classList.remove(...tones);
        element.classList.add(tone);
      }
    }
    for (const [name, value] of said.meters || []) {
      for (const element of all("data-meter", name)) element.value = value;
    }
    // Our own drawings, of numbers alone.
    for (const name of ["chart", "latency"]) {
      const chart = document.getElementById(name);
      if (chart && said[name]) chart.innerHTML = said[name];
    }
  };

  const source = new EventSource(place.dataset.stream);
  const tell = (text, lost) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("lost", lost);
    // What stands there is of the past.
    place.classList.toggle("stale", lost);
  };
  source.onmessage = (event) => {
    put(JSON.parse(event.data));
    tell("Live.", false);
  };
  source.onerror = () => {
    const ended = source.readyState === EventSource.CLOSED;
    tell(ended ? "Not live: reload to try again." : "Reconnecting. The numbers are old.", true);
  };
  window.addEventListener("pagehide", () => source.close());
})();
