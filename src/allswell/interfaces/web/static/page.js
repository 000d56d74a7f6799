// What a page does by itself: clocks that tick, the banner while the server is gone, keys, dark and light.
// Everything else is htmx: forms that are posted, and the screen that is morphed when the server sends it again.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const live = $("live");

  // --- clocks: the server's, as far as we know it ------------------------------------------------------------------
  let ahead = Number(document.body.dataset.now) - Date.now();
  const now = () => Date.now() + ahead;

  const felt = (ms) => {
    const s = Math.floor(ms / 1000);
    if (s < 60) return `${s}s`;
    const m = Math.floor(s / 60);
    if (m < 10) return s % 60 ? `${m}m ${s % 60}s` : `${m}m`;
    if (m < 60) return `${m}m`;
    const h = Math.floor(m / 60);
    if (h < 24) return m % 60 ? `${h}h ${m % 60}m` : `${h}h`;
    const d = Math.floor(h / 24);
    return h % 24 ? `${d}d ${h % 24}h` : `${d}d`;
  };
  const words = (at, mode) => {
    const passed = now() - at;
    if (mode === "ago") return passed < 1000 ? "just now" : `${felt(passed)} ago`;
    if (passed > 0) return passed >= 1000 ? `${felt(passed)} overdue` : "now";
    return passed > -1000 ? "now" : `in ${felt(-passed)}`;
  };
  const tick = () => {
    for (const one of document.querySelectorAll("time[data-mode]")) {
      const text = words(Date.parse(one.dateTime), one.dataset.mode);
      if (one.textContent !== text) one.textContent = text;
    }
  };
  setInterval(tick, 1000);

  // --- the connection ------------------------------------------------------------------------------------------------
  const SILENCE = 35000; // a sign of life comes every ten seconds
  let lostAt = 0, heardAt = Date.now(), connection = null;
  const lose = () => {
    if (!lostAt) lostAt = heardAt;
    $("lost").hidden = false;
    $("lost-since").textContent = `${felt(Date.now() - lostAt)} ago`;
    $("state").classList.add("gone");
    $("state-words").textContent = "lost";
  };
  const regain = () => {
    heardAt = Date.now();
    lostAt = 0;
    $("lost").hidden = true;
    $("state").classList.remove("gone", "waiting");
    $("state-words").textContent = "live";
  };
  const outside = () => location.assign("/login?over=1&back=" + encodeURIComponent(location.pathname + location.search));
  if (live) {
    live.addEventListener("htmx:sse:before:connection", (event) => {
      connection = event.detail.connection;
      if (connection.attempt > 0) lose();
    });
    live.addEventListener("htmx:sse:after:connection", () => { heardAt = Date.now(); });
    live.addEventListener("htmx:sse:after:message", regain);
    live.addEventListener("htmx:sse:error", (event) => {
      if (event.detail.status === 401) outside(); else lose();
    });
    // The first call itself may fail: htmx tries again only what was connected once.
    const again = () => { lose(); setTimeout(() => { htmx.trigger(live, "again"); }, 1000); };
    live.addEventListener("htmx:error", again);
    live.addEventListener("htmx:after:request", (event) => {
      const status = event.detail.ctx.response?.status ?? 0;
      if (status < 400) return;
      event.preventDefault();
      if (status === 401) outside(); else again();
    });
    // A server that is frozen, or a network that is gone, ends nothing: silence is noticed, and the connection cut.
    setInterval(() => {
      if (document.hidden) { heardAt = Date.now(); return; }
      if (lostAt) lose();
      if (Date.now() - heardAt > SILENCE) { lose(); connection?.reader?.cancel(); }
    }, 1000);
  }
  document.addEventListener("htmx:after:swap", tick);

  // A tab in the background has no connection (browsers allow few), but its title must not say that all is well when
  // it is not: so that alone is asked for, once a minute.
  setInterval(async () => {
    if (!document.hidden) return;
    try {
      const answer = await fetch(location.href);
      const title = new DOMParser().parseFromString(await answer.text(), "text/html").title;
      if (answer.ok && !answer.redirected && document.hidden) document.title = title;
    } catch { document.title = "Connection lost · Allswell"; }
  }, 60000);

  // --- what grows at its end: it follows, unless the reader has gone back in it -------------------------------------
  const left = new WeakSet();
  document.addEventListener("scroll", (event) => {
    const one = event.target;
    if (!one.dataset || one.dataset.follow === undefined) return;
    if (one.scrollHeight - one.scrollTop - one.clientHeight > 24) left.add(one); else left.delete(one);
  }, true);
  const follow = () => {
    for (const one of document.querySelectorAll("[data-follow]")) if (!left.has(one)) one.scrollTop = one.scrollHeight;
  };
  document.addEventListener("htmx:after:swap", follow);
  follow();

  document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // --- dark and light ------------------------------------------------------------------------------------------------
  const turn = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("allswell-theme", root.dataset.theme); } catch { /* it holds for this page */ }
  };
  $("theme")?.addEventListener("click", turn);

  // --- keys ----------------------------------------------------------------------------------------------------------
  const cards = () => [...document.querySelectorAll("[data-card]")];
  const step = (by) => {
    const all = cards();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement?.closest("[data-card]"));
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const press = (number) => {
    const card = document.activeElement?.closest("[data-card]");
    card?.querySelectorAll(".options > button, .options > form > button, .options > details > summary")[number - 1]?.click();
  };
  const help = () => { const sheet = $("keys"); if (sheet.open) sheet.close(); else sheet.showModal(); };
  $("help")?.addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog[open]")) return; // one just closed has the focus for a moment
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "t") turn();
    else if (event.key === "?") help();
    else if (/^[1-9]$/.test(event.key)) press(Number(event.key));
    else return;
    event.preventDefault();
  });
  // What was said stays long enough to be read.
  let fading;
  document.addEventListener("htmx:after:swap", (event) => {
    if (!event.target.closest?.("form") && event.target.id !== "said") return;
    clearTimeout(fading);
    if ($("said").querySelector(".well")) fading = setTimeout(() => $("said").replaceChildren(), 8000);
  });
})();
