"use strict";
// Shows what the API says, and asks it for everything: nothing is decided here.

const $ = (id) => document.getElementById(id);
let key = "";
let current = null;
let following = null;
let last = null;
let who = "";

async function call(method, path, body, form) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: form ?? (body === undefined ? undefined : JSON.stringify(body)) });
  if (answer.status === 401) $("keyform").hidden = false;
  const data = await answer.json().catch(() => ({}));
  return { ok: answer.ok, status: answer.status, data };
}

function say(text, kind = "") {
  $("state").textContent = text;
  $("state").className = kind;
}

function made(tag, text, kind) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
}

function fields(file) {
  const form = new FormData();
  form.append("file", file, $("file").files[0].name);
  for (const name of ["assunto", "texto", "html", "template", "remetente", "duvida", "identidade", "reingestao"]) {
    if ($(name).value.trim()) form.append(name, $(name).value);
  }
  return form;
}

async function look() {
  const file = $("file").files[0];
  if (!file) return say("Escolha um arquivo.", "bad");
  const { ok, data } = await call("POST", "/mailings/previa", undefined, fields(file.slice(0, 65536)));
  $("preview").replaceChildren();
  if (!ok) return say(data.detail, "bad");
  say(`${data.colunas.length} colunas (${data.colunas.join(", ")}), ${data.codificacao}. Assim começam os e-mails:`, "ok");
  const table = made("table");
  for (const one of data.itens) {
    const row = made("tr");
    row.append(made("td", one.email), made("td", one.erro ?? one.assunto), made("td", (one.texto ?? one.html ?? "").slice(0, 200)));
    table.append(row);
  }
  $("preview").append(table);
}

async function send(event) {
  event.preventDefault();
  $("send").disabled = true;
  const { ok, status, data } = await call("POST", "/mailings", undefined, fields($("file").files[0]));
  $("send").disabled = false;
  if (!ok) return say(`${status}: ${data.detail}`, "bad");
  const differs = data.conteudoDiferente ? " O conteúdo é outro, e não foi lido." : "";
  say(data.created ? "Lista recebida." : `Esta lista já estava aqui; ninguém recebe de novo.${differs}`, differs ? "bad" : "ok");
  await list();
  open(data.mailingId);
}

async function list() {
  const { ok, data } = await call("GET", "/mailings?limite=50");
  if (!ok) return;
  $("mailings").replaceChildren(...data.itens.map((one) => {
    const line = made("li");
    const button = made("button", `${one.filename} · ${one.entradas.SENT}/${one.entradas.total} `, "plain");
    button.append(made("span", one.status, `tag ${one.status}`));
    button.addEventListener("click", () => open(one.mailingId));
    line.append(button);
    return line;
  }));
}

function show(one) {
  current = one;
  $("one").hidden = false;
  $("name").textContent = `${one.filename} · ${one.status}${one.pedido ? ` (${one.pedido} pedido)` : ""}`;
  const left = one.entradas.PENDING + one.entradas.SENDING;
  $("bar").value = one.leitura.concluida ? (one.entradas.total ? 1 - left / one.entradas.total : 1) : 0.5 * one.leitura.bytes / Math.max(one.leitura.de, 1);
  $("told").textContent = one.motivo ?? (one.conservacao.confere ? `Tudo confere. Um crash deixa em dúvida no máximo ${one.grupo} e-mails.` : one.conservacao.faltas.join("; "));
  $("counts").replaceChildren(...Object.entries(one.entradas).map(([name, many]) => {
    const box = made("div");
    box.append(made("dt", name), made("dd", String(many)));
    return box;
  }));
  const busy = ["PENDING", "QUEUED", "PROCESSING", "FAILED"].includes(one.status);
  const may = {
    pausar: busy,
    retomar: ["PAUSED", "FAILED"].includes(one.status),
    cancelar: busy || one.status === "PAUSED",
    reenviar: one.entradas.FAILED > 0 && !["PROCESSING", "CANCELLED"].includes(one.status),
  };
  for (const button of document.querySelectorAll("[data-act]")) button.disabled = !may[button.dataset.act];
  const parts = one.linhas;
  $("lines").textContent = `${parts.total} linhas = ${parts.aceitas} aceitas + ${parts.duplicadas} repetidas + ${parts.invalidas} inválidas + ${parts.em_branco} em branco`;
}

async function open(id) {
  following?.abort();
  following = new AbortController();
  const signal = following.signal;
  const { ok, data } = await call("GET", `/mailings/${id}`);
  if (!ok) return;
  show(data);
  entries();
  try {
    await follow(id, signal);
  } catch (error) {
    if (error.name !== "AbortError") say("A conexão caiu; abra a lista de novo.", "bad");
  }
}

async function follow(id, signal) {
  // EventSource cannot carry a key, so the stream is read by hand.
  const answer = await fetch(`/mailings/${id}/progresso`, { headers: key ? { Authorization: `Bearer ${key}` } : {}, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = /^event: progresso\ndata: (.*)$/m.exec(block);
      if (data) show(JSON.parse(data[1]));
      ended = ended || block.startsWith("event: fim");
    }
  }
  // A stream is closed after an hour, whatever the mailing does.
  if (!ended && answer.ok) return follow(id, signal);
  entries();
  mailbox();
  list();
}

async function entries(after = "") {
  if (!current) return;
  const query = new URLSearchParams({ limite: "50", depois: after });
  if ($("filter").value) query.set("status", $("filter").value);
  const { ok, data } = await call("GET", `/mailings/${current.mailingId}/entries?${query}`);
  if (!ok) return;
  if (!after) $("entries").replaceChildren();
  $("entries").append(...data.itens.map(entry));
  last = data.proximo;
  $("more").hidden = !last;
}

function entry(one) {
  const line = made("li");
  line.append(made("span", `${one.email} `), made("span", one.status, `tag ${one.status}`));
  if (one.resposta) line.append(made("p", `linha ${one.linha} · tentativas ${one.attempts} · ${one.resposta}`, "quiet"));
  if (one.status === "UNKNOWN") {
    line.append(made("p", `${one.provedor} · ${one.messageId} · ${one.lastAttempt}`, "quiet"));
    const row = made("div", undefined, "row");
    for (const result of ["enviado", "reenviar", "falhou"]) {
      const button = made("button", result, "plain small");
      button.addEventListener("click", () => resolve(one, result));
      row.append(button);
    }
    line.append(row);
  }
  return line;
}

async function resolve(one, result) {
  who ||= prompt("Quem decide? O nome fica no histórico.") ?? "";
  const reason = who && prompt(`Por que "${result}" para ${one.email}?`);
  if (!reason) return;
  const where = `/mailings/${current.mailingId}/entries/${one.id}/resolver`;
  const { ok, data } = await call("POST", where, { resultado: result, por: who, motivo: reason });
  say(ok ? `${one.email}: ${data.status}` : data.detail, ok ? "ok" : "bad");
  open(current.mailingId);
}

async function act(name) {
  if (name === "cancelar" && !confirm("Cancelar é para sempre. Continuar?")) return;
  const { ok, data } = await call("POST", `/mailings/${current.mailingId}/${name}`);
  say(ok ? `Pedido: ${name}.` : data.detail, ok ? "ok" : "bad");
  open(current.mailingId);
}

async function download(path, name) {
  const answer = await fetch(path, { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  if (!answer.ok) return say(`${answer.status}: não foi possível baixar.`, "bad");
  const link = made("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function mailbox() {
  const { ok, data } = await call("GET", "/mailings/caixa?limite=50");
  if (!ok) return;
  $("mailbox").replaceChildren(...data.itens.map((one) => {
    const line = made("li");
    const button = made("button", `${one.destinatario} · ${one.assunto}`, "plain");
    button.addEventListener("click", () => letter(one));
    line.append(button);
    return line;
  }));
}

async function letter(one) {
  const { ok, data } = await call("GET", `/mailings/caixa/${one.id}`);
  if (!ok) return;
  $("letter").hidden = false;
  $("subject").textContent = one.assunto;
  $("head").textContent = data.cabecalhos.map(([name, value]) => `${name}: ${value}`).join(" · ");
  $("plain").textContent = data.texto ?? "";
  $("plain").hidden = data.texto === null;
  $("rich").hidden = data.html === null;
  if (data.html === null) return;
  // A frame cannot carry a key; with one the text is put in by hand, without styles of its own.
  if (key) $("rich").srcdoc = data.html;
  else $("rich").src = `/mailings/caixa/${one.id}/html`;
}

async function suppressed() {
  const { ok, data } = await call("GET", "/mailings/supressao");
  if (!ok) return;
  $("suppressed").replaceChildren(...data.itens.map((one) => {
    const line = made("li", `${one.email} · ${one.motivo} `);
    const button = made("button", "permitir", "plain small");
    button.addEventListener("click", async () => {
      await call("DELETE", `/mailings/supressao/${encodeURIComponent(one.email)}`);
      suppressed();
    });
    line.append(button);
    return line;
  }));
}

async function templates() {
  const { ok, data } = await call("GET", "/mailings/modelos");
  if (ok) $("template").append(...data.itens.map((one) => made("option", one.nome)));
}

function start() {
  list();
  mailbox();
  suppressed();
  templates();
}

$("form").addEventListener("submit", send);
$("look").addEventListener("click", look);
$("filter").addEventListener("change", () => entries());
$("more").addEventListener("click", () => entries(last));
$("report").addEventListener("click", () => download(`/mailings/${current.mailingId}/relatorio.csv`, `relatorio-${current.mailingId}.csv`));
$("export").addEventListener("click", () => download("/mailings/supressao.csv", "supressao.csv"));
$("refresh").addEventListener("click", mailbox);
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => act(button.dataset.act));
$("bar-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { ok, data } = await call("POST", "/mailings/supressao", { emails: [$("barred").value] });
  say(ok ? "Este endereço não recebe mais." : data.detail, ok ? "ok" : "bad");
  $("barred").value = "";
  suppressed();
});
$("keyform").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value;
  $("keyform").hidden = true;
  start();
});
for (const name of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(name, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) $("file").files = event.dataTransfer.files;
  });
}
start();
