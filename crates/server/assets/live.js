// Puts what the event stream says into the page, says a drawing's numbers to the pointer
// and the arrow keys, and copies ids. Without it the page stands still, and all else
// works: whole ids stand on their own pages.
"use strict";

(() => {
  // Where a line is at x: its last point before that, as far as it goes on; in a gap,
  // nowhere.
  const at = (path, x) => {
    let [y, end] = [null, -1];
    const steps = (path?.getAttribute("d") || "").matchAll(/([MLH])([\d.]+)(?: ([\d.]+))?/g);
    for (const [, pen, px, py] of steps) {
      if (pen === "M" && Number(px) > x) break;
      if (pen !== "M" && Number(px) > x) return y;
      end = Number(px);
      if (pen !== "H") y = Number(py);
    }
    return x <= end ? y : null;
  };
  const span = (seconds) => {
    const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
    const largest = parts.findIndex(([, length]) => seconds >= length);
    if (largest < 0) return "now";
    const [name, length] = parts[largest];
    const count = Math.floor(seconds / length);
    const next = parts[largest + 1];
    const left = next ? Math.floor((seconds - count * length) / next[1]) : 0;
    return `${count} ${name}${left ? ` ${left} ${next[0]}` : ""} ago`;
  };

  for (const figure of document.querySelectorAll("figure[data-line]")) {
    const svg = figure.querySelector("svg");
    const [output, top] = [figure.querySelector("output"), figure.querySelector(".top")];
    const { width, height } = svg.viewBox.baseVal;
    const names = svg.dataset.names.split(",");
    let part = 1;
    const say = () => {
      const [, number, unit] = top.textContent.match(/^([\d.,]+)\s*(.*)$/) || [];
      const highest = Number((number || "0").replaceAll(",", ""));
      const said = [".line", ".limit"].map((path, i) => {
        const y = at(svg.querySelector(path), part * width);
        if (y === null) return null;
        const value = ((height - y) / height) * highest;
        return `${names[i]} ${value < 10 ? Number(value.toPrecision(2)) : Math.round(value)} ${unit}`;
      });
      const numbers = said.filter((text) => text !== null).join(", ") || "nothing";
      output.textContent = `${numbers}, ${span((1 - part) * Number(figure.dataset.line))}`;
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      say();
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1 / 60, ArrowRight: 1 / 60, Home: -1, End: 1 }[event.key];
      if (step === undefined) return;
      part = Math.min(1, Math.max(0, part + step));
      say();
      event.preventDefault();
    });
    const silent = () => { output.textContent = ""; };
    svg.addEventListener("pointerleave", silent);
    svg.addEventListener("focus", say);
    svg.addEventListener("blur", silent);
  }

  for (const figure of document.querySelectorAll("figure[data-bars]")) {
    const svg = figure.querySelector("svg");
    const output = figure.querySelector("output");
    const all = output.textContent;
    const bars = [...svg.querySelectorAll("g[data-words]")];
    let on = bars.length - 1;
    const say = (index) => {
      bars.forEach((bar, i) => bar.classList.toggle("on", i === index));
      output.textContent = bars[index]?.dataset.words ?? all;
      if (index >= 0) on = index;
    };
    svg.addEventListener("pointerover", (event) => say(bars.indexOf(event.target.closest("g"))));
    svg.addEventListener("pointerleave", () => say(-1));
    svg.addEventListener("focus", () => say(on));
    svg.addEventListener("blur", () => say(-1));
    svg.addEventListener("keydown", (event) => {
      const next = { ArrowLeft: on - 1, ArrowRight: on + 1, Home: 0, End: bars.length - 1 }[event.key];
      if (next === undefined || !bars.length) return;
      say(Math.min(bars.length - 1, Math.max(0, next)));
      event.preventDefault();
    });
  }
})();

(() => {
  const status = document.getElementById("copied");
  const selected = (text) => {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  // A page in plain text from another machine has no clipboard but the old one.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return selected(text);
    }
  };
  for (const button of document.querySelectorAll("button.copy")) {
    const word = button.firstElementChild;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const id = button.dataset.copy || button.previousElementSibling.textContent;
      const done = await copy(id);
      button.focus();
      word.textContent = done ? "copied" : "not copied";
      status.textContent = done ? `${id} copied` : `${id} was not copied`;
      setTimeout(() => { word.textContent = "copy"; }, 2000);
    });
  }
})();

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

  // So long without a word, and the server has nothing to say for itself: it looks every
  // two seconds.
  const silence = 15000;
  let heard = Date.now();
  const source = new EventSource(place.dataset.stream);
  const tell = (text, lost) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("lost", lost);
    // What stands there is of the past.
    place.classList.toggle("stale", lost);
  };
  source.onmessage = (event) => {
    heard = Date.now();
    put(JSON.parse(event.data));
    tell("Live.", false);
  };
  source.onerror = () => {
    const ended = source.readyState === EventSource.CLOSED;
    tell(ended ? "Not live: reload to try again." : "Reconnecting. The numbers are old.", true);
  };
  const watch = setInterval(() => {
    if (source.readyState === EventSource.OPEN && Date.now() - heard > silence) {
      tell("No answer for a while. The numbers are old.", true);
    }
  }, 1000);
  window.addEventListener("pagehide", () => {
    clearInterval(watch);
    source.close();
  });
})();
