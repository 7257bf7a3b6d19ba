// Brings the page up to date every few seconds, and counts the age of what it shows. It sends nothing but requests for this page.
"use strict";
(() => {
  const every = 10;
  const limit = 8000;
  let loaded = performance.now();
  let busy = false;

  function inWords(seconds) {
    if (seconds < 120) return `${Math.round(seconds)} s`;
    return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  }

  function parsed(text) {
    const [number, unit] = text.split(" ");
    return Number(number) * ({ s: 1, min: 60, h: 3600 }[unit] ?? NaN);
  }

  let age = NaN;
  function begin() {
    age = parsed(document.getElementById("age")?.textContent ?? "");
    loaded = performance.now();
  }

  function tick() {
    const shown = document.getElementById("age");
    const seconds = age + (performance.now() - loaded) / 1000;
    if (shown && seconds < 86400) shown.textContent = inWords(seconds);
  }

  function say(text) {
    const stale = document.getElementById("stale");
    if (stale && stale.textContent !== text) stale.textContent = text;
  }

  // Nobody who reads, selects or types is disturbed.
  const isRead = () => !(getSelection()?.isCollapsed ?? true);

  async function refresh() {
    if (busy || document.hidden || isRead()) return;
    busy = true;
    try {
      const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(limit) });
      if (!answer.ok) throw new Error(`${answer.status}`);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      const [from, to] = [next.getElementById("all"), document.getElementById("all")];
      if (!from || !to) throw new Error("another page");
      const closed = new Set([...to.querySelectorAll("details:not([open])")].map((one) => one.id));
      for (const one of from.querySelectorAll("details")) one.open = !closed.has(one.id);
      const focus = document.activeElement?.getAttribute("href");
      to.replaceChildren(...from.childNodes);
      if (focus) to.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
      document.title = next.title;
      begin();
    } catch {
      say("The page cannot be brought up to date: rowen-web does not answer.");
    } finally {
      busy = false;
    }
  }

  begin();
  setInterval(tick, 1000);
  setInterval(refresh, every * 1000);
  document.addEventListener("visibilitychange", refresh);
})();
