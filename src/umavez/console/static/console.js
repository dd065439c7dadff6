// The console works without this. It adds: a word when something has changed, and keys to get around.
"use strict";
(() => {
  const base = document.body.dataset.base;
  const news = document.getElementById("news");
  let mark = null, paused = false, going = false;

  async function look() {
    if (paused || document.hidden || !news) return;
    try {
      const answer = await fetch(`${base}/pulse`, { headers: { accept: "application/json" } });
      if (!answer.ok) return;
      const told = (await answer.json()).mark;
      if (mark !== null && told !== null && told !== mark) news.hidden = false;
      mark = mark === null ? told : mark;
    } catch { /* the next look is soon */ }
  }
  setInterval(look, 10000);
  look();

  // A click selects a digest whole; where the browser lets a page copy, a button does both.
  if (navigator.clipboard) for (const text of document.querySelectorAll(".copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copied";
    button.textContent = document.body.dataset.copy;
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text.textContent); button.textContent = "✓"; } catch { getSelection().selectAllChildren(text); }
    });
    text.after(button);
  }

  // Rows never move by themselves: whoever reads decides when the page is drawn again.
  news?.querySelector("a").addEventListener("click", (event) => { event.preventDefault(); location.reload(); });

  const places = { o: "/", u: "/unknown", r: "/records", m: "/messages", d: "/decisions" };
  const rows = () => [...document.querySelectorAll("a.key")];
  const step = (by) => {
    const all = rows(), at = all.indexOf(document.activeElement);
    all[Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const key = event.key;
    if (going && places[key]) location.href = base + places[key];
    going = key === "g";
    if (key === "/") { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
    if (key === "j") step(1);
    if (key === "k") step(-1);
    if (key === "?") { const keys = document.getElementById("keys"); keys.hidden = !keys.hidden; }
    if (key === "Escape") document.getElementById("keys").hidden = true;
    if (key === "p") paused = !paused;
    if (key === "t") {
      const dark = document.documentElement.dataset.theme === "dark" ||
        (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
      const link = document.getElementById("dark");
      location.href = dark ? link.href.replace("theme=dark", "theme=light") : link.href;
    }
  });
})();
