// Keeps a page up to date, moves the scrubber, copies commands, and listens to keys. Everything here is a comfort: without
// it every page and every form works the same.
(() => {
  "use strict";
  const $ = (one, of = document) => of.querySelector(one);
  const all = (many, of = document) => [...of.querySelectorAll(many)];
  const state = $("#live-state");

  // ---- what is shown, made new: only what differs is touched, so that focus, open folds and half-filled forms stay.

  // A form that has a field named `id` answers with that field when it is asked for its own.
  const id = (node) => node.nodeType === 1 ? node.getAttribute("id") : null;
  const key = (node) => id(node) || node.nodeName;
  function morph(now, next) {
    if (now.nodeType !== next.nodeType || key(now) !== key(next)) return now.replaceWith(next.cloneNode(true));
    if (now.nodeType !== 1) { if (now.data !== next.data) now.data = next.data; return; }
    if (now.isEqualNode(next) || busy(now)) return;
    for (const { name } of [...now.attributes]) if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
    for (const { name, value } of [...next.attributes]) {
      if (now.getAttribute(name) !== value && name !== "open") now.setAttribute(name, value);
    }
    // Each once: of two that have one id, both stay.
    const known = new Map();
    for (const one of [...now.children].filter(id)) known.set(id(one), [...(known.get(id(one)) ?? []), one]);
    let place = now.firstChild;
    for (const wanted of [...next.childNodes]) {
      const found = known.get(id(wanted))?.shift();
      if (found && found !== place) { now.insertBefore(found, place); place = found; }
      if (!place) { now.append(wanted.cloneNode(true)); continue; }
      const after = place.nextSibling;
      if (id(wanted) && !found && id(place) && $("#" + CSS.escape(id(place)), next)) { now.insertBefore(wanted.cloneNode(true), place); continue; }
      morph(place, wanted);
      place = after;
    }
    while (place) { const after = place.nextSibling; if (!busy(place)) place.remove(); place = after; }
  }
  // A form in which somebody is, or has written, is theirs.
  function busy(node) {
    if (node.tagName !== "FORM" || node.classList.contains("filter")) return false;
    if (node.contains(document.activeElement)) return true;
    return all("textarea, input:not([type=hidden]):not([type=range])", node).some((one) => (one.type === "checkbox" ? one.checked !== one.defaultChecked : one.value !== one.defaultValue));
  }

  // A page that takes long to make is made less often, so that looking at it costs the worker a fifth of its time at most.
  let asking = false, again = false, rested = 0;
  async function renew() {
    if (asking || performance.now() < rested) {
      if (!asking && !again) setTimeout(() => { again = false; renew(); }, rested - performance.now() + 1);
      again = true;
      return;
    }
    asking = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" });
      if (answer.type === "opaqueredirect") { asking = false; say("off", "signed out"); return false; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = $("main", page);
      if (answer.ok && next) { morph($("main"), next); comforts(); say("on", "live"); }
    } catch { say("off", "the worker does not answer"); }
    asking = false;
    const took = performance.now() - began;
    rested = took > 250 ? performance.now() + 4 * took : 0;
    if (again) { again = false; renew(); }
  }
  function say(how, words) {
    if (!state || (state.dataset.state === how && state.textContent === words)) return;
    state.dataset.state = how;
    state.textContent = words;
  }
  function listen() {
    const query = document.body.dataset.live;
    if (query === undefined) return;
    let source;
    const open = () => {
      source = new EventSource("/live?query=" + encodeURIComponent(query));
      // What has happened between the page and its stream is told by nobody.
      source.addEventListener("ready", () => { say("on", "live"); renew(); });
      source.addEventListener("changed", renew);
      source.onerror = () => {
        say("off", "reconnecting");
        // A refusal ends the stream for good: who is signed out stays so; a worker that is started again is asked again.
        const lost = source, still = () => lost === source && !document.hidden;
        if (lost.readyState === EventSource.CLOSED) setTimeout(async () => { if (still() && await renew() !== false && still()) open(); }, 2000);
      };
    };
    // A browser opens few connections to one host: pages that nobody looks at leave them to those that somebody does.
    const look = () => {
      source?.close();
      if (document.hidden) say("off", "not looked at"); else open();
    };
    look();
    // Times that are told from now, what only time changes, and runs below: nothing that happens to this run tells of them.
    setInterval(() => { if (!document.hidden && source?.readyState === EventSource.OPEN) renew(); }, 10000);
    document.addEventListener("visibilitychange", look);
    addEventListener("pagehide", () => source?.close());
  }

  // ---- the scrubber

  let wanted = 0;
  async function scrub(input) {
    const form = input.form, here = ++wanted;
    const address = new URL(location.href);
    for (const [name, value] of new FormData(form)) address.searchParams.set(name, value);
    $("output", form).textContent = input.value + " of " + input.max;
    const answer = await fetch(address);
    if (here !== wanted || !answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    $("#moment").replaceWith($("#moment", page));
    all(".scrubber a").forEach((link, at) => { link.href = all(".scrubber a", page)[at].href; });
    history.replaceState(null, "", address);
    comforts();
  }
  let soon;
  document.addEventListener("input", (event) => {
    if (event.target.matches(".scrubber input[type=range]")) { clearTimeout(soon); soon = setTimeout(scrub, 60, event.target); }
  });
  function step(by) {
    const input = $(".scrubber input[type=range]");
    if (input) { input.value = Number(input.value) + by; scrub(input); }
  }

  // ---- comforts

  function comforts() {
    for (const button of all(".copy[hidden], .from-file[hidden]")) button.hidden = false;
  }
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest(".copy");
    if (copy) { await navigator.clipboard.writeText(copy.dataset.copy); copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); }
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    if (event.target.closest(".theme")) theme();
  });
  const root = document.documentElement;
  function theme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("bosun-theme", root.dataset.theme); } catch { /* not kept, then */ }
  }
  try { const kept = localStorage.getItem("bosun-theme"); if (kept) root.dataset.theme = kept; } catch { /* as the system says */ }

  // ---- keys

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") all("details.menu[open]").forEach((menu) => { menu.open = false; $("summary", menu).focus(); });
    if (event.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select, dialog")) return;
    const places = { r: "/", i: "/inbox", a: "/agents", s: "/schedules", w: "/system", d: "/docs" };
    if (before === "g" && places[event.key]) { location.href = places[event.key]; return; }
    before = event.key;
    const rows = all(".runs tbody tr"), at = rows.findIndex((row) => row.contains(document.activeElement));
    const to = (next) => { const row = rows[next]; if (row) $("a", row)?.focus(); };
    const does = {
      "/": () => $("#query")?.focus(), j: () => to(Math.min(at + 1, rows.length - 1)), k: () => to(Math.max(at - 1, 0)),
      "[": () => step(-1), "]": () => step(1), t: theme,
      x: () => $("input[type=checkbox]", rows[at] ?? document.createElement("p"))?.click(), "?": () => $("#keys")?.showModal(),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  });

  // A page that the browser has kept and shows again may be of somebody who has signed out, and hears nothing.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  document.addEventListener("change", async ({ target }) => {
    const into = target.dataset?.into;
    if (into && target.files?.[0]) $("#" + into).value = await target.files[0].text();
  });
  for (const button of all(".theme[hidden]")) button.hidden = false;
  comforts();
  listen();
})();
