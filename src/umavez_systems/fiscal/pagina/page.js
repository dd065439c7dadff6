"use strict";
const API = "/api/v1/fiscal";
const $ = (id) => document.getElementById(id);
const OK = ["AUTORIZADO"], WAIT = ["RASCUNHO", "TRANSMITIDO", "INDETERMINADO", "CANCELAMENTO_PENDENTE"], GREY = ["CANCELADO", "INUTILIZADO"];
let last = null, chosen = null;

function say(text, kind) { $("state").textContent = text; $("state").className = kind || ""; }

function node(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function tag(state) {
  return node("span", state, "tag " + (OK.includes(state) ? "ok" : WAIT.includes(state) ? "wait" : GREY.includes(state) ? "" : "bad"));
}

async function call(method, path, body, key) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(API + path, { method, headers, body: body && JSON.stringify(body) });
  if (answer.status === 401) $("login").hidden = false;
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.detail || data.erro || data.title || answer.status);
  return { status: answer.status, data };
}

async function guarded(work) {
  try { await work(); } catch (error) { say(error.message, "bad"); }
}

const ADDRESS = { logradouro: "Praca da Se", numero: "1", bairro: "Se", codigo_municipio: "3550308", municipio: "Sao Paulo", uf: "SP", cep: "01001000" };

function order() {
  const value = $("value").value.trim();
  const buyer = { nome: "Maria Souza", cpf: "52998224725", endereco: ADDRESS };
  if ($("kind").value.startsWith("NFSE")) {
    return {
      tipo: $("kind").value, organizacao: "demo", serie: Number($("series").value) || 1, destinatario: buyer,
      servico: { descricao: "Consultoria", codigo: $("kind").value === "NFSE_SP" ? "02919" : "010101", valor: value, aliquota: "2.00" },
    };
  }
  return {
    tipo: $("kind").value, organizacao: "demo", serie: Number($("series").value) || 1,
    destinatario: buyer,
    itens: [{ codigo: "1", descricao: "Caneta azul", ncm: "96081000", cfop: "5102", unidade: "UN", quantidade: "1", valor_unitario: value }],
    pagamentos: [{ forma: "01", valor: value }],
  };
}

async function emit(again) {
  if (!again) last = { key: crypto.randomUUID(), body: order() };
  say("Emitindo…");
  const { status, data } = await call("POST", "/documentos", last.body, last.key);
  $("again").disabled = false;
  say(`${status} · ${data.tipo} ${data.serie}/${data.numero}: ${data.estado}, origem ${ORIGINS[data.origem] || data.origem}`, OK.includes(data.estado) ? "ok" : "wait");
  await list();
  await show(data.id);
}

const ORIGINS = { emissao: "emissão", conciliacao: "conciliação" };

async function list() {
  const { data } = await call("GET", "/documentos?limite=50");
  const rows = data.itens.map((item) => {
    const row = node("tr");
    row.tabIndex = 0;
    row.dataset.id = item.id;
    if (item.id === chosen) row.setAttribute("aria-selected", "true");
    row.append(node("td", `${item.tipo} ${item.serie}/${item.numero}`));
    const state = node("td"); state.append(tag(item.estado)); if (item.incidente) state.append(" ", node("span", "incidente", "tag bad")); row.append(state);
    row.append(node("td", item.total.replace(".", ",")), node("td", ORIGINS[item.origem] || item.origem), node("td", item.chave_acesso, "far"));
    row.append(node("td", (item.emitido_em || "").slice(0, 19).replace("T", " "), "far"));
    row.onclick = () => guarded(() => show(item.id));
    row.onkeydown = (event) => { if (event.key === "Enter") row.onclick(); };
    return row;
  });
  $("list").replaceChildren(...rows);
  $("none").hidden = rows.length > 0;
  await pending();
}

function line(entry) {
  const content = JSON.parse(entry.conteudo);
  const when = new Date(entry.quando).toISOString().slice(11, 23);
  const said = {
    intencao: () => `intenção: número ${content.numero}`,
    bytes: () => `bytes assinados e guardados (${content.acao || "emitir"})`,
    envio: () => `envio ${content.tentativa || ""} ${content.acao || ""}`,
    resposta: () => `resposta ${content.servico} ${content.codigo}`,
    decisao: () => `decisão ${content.desfecho} pela regra ${content.regra} (${content.fonte}): ${content.acao}`,
    falha: () => `sem resposta: ${content.motivo}`,
    estado: () => `${content.de} → ${content.para}`,
    incidente: () => `INCIDENTE: a autoridade cancelou ${content.anteriores.join(", ")} e emitiu ${content.atual}`,
    ignorada: () => `resposta atrasada: dizia ${content.resposta}, e já era ${content.estado}`,
  }[entry.tipo];
  const made = node("li", `${when} ${said ? said() : entry.tipo} `);
  made.append(node("code", entry.resumo.slice(0, 10)));
  return made;
}

async function show(id) {
  chosen = id;
  const [{ data }, proof] = await Promise.all([call("GET", "/documentos/" + id), call("GET", `/documentos/${id}/prova`)]);
  $("one").hidden = false;
  $("title").replaceChildren(node("span", `${data.tipo} ${data.serie}/${data.numero} `), tag(data.estado));
  const facts = [data.chave_acesso, data.protocolo && "protocolo " + data.protocolo, data.codigo && `${data.codigo} ${data.motivo || ""}`,
    data.proxima_consulta_em && "será consultado em " + data.proxima_consulta_em.slice(11, 19) + " UTC", "versão " + data.versao,
    data.incidente && `INCIDENTE: cancelada ${data.incidente.anteriores.join(", ")}, emitida ${data.incidente.atual}`];
  $("facts").textContent = facts.filter(Boolean).join(" · ");
  $("cancel").disabled = data.estado !== "AUTORIZADO";
  $("letter").disabled = data.estado !== "AUTORIZADO" || data.tipo !== "NFE";
  $("cancel").dataset.versao = data.versao;
  $("xml").href = `${API}/documentos/${id}/xml`; $("pdf").href = `${API}/documentos/${id}/pdf`; $("pdf").hidden = data.tipo === "NFSE_SP";
  $("whole").textContent = proof.data.falhas.length ? "quebrada: " + proof.data.falhas[0] : `· inteira, ${proof.data.entradas.length} entradas`;
  $("proof").replaceChildren(...proof.data.entradas.map(line));
  for (const row of $("list").children) row.setAttribute("aria-selected", String(row.dataset.id === id));
}

async function act(path, body, word) {
  say(word + "…");
  const { status, data } = await call("POST", `/documentos/${chosen}/${path}`, body);
  say(`${status} · ${data.estado}`, "ok");
  await list();
  await show(chosen);
}

async function numbers() {
  const { data } = await call("GET", "/numeracao");
  $("ledger").replaceChildren(...data.itens.map((series) => {
    const box = node("div", null, "series");
    box.append(node("strong", `${series.organizacao} · modelo ${series.modelo} · série ${series.serie} `));
    box.append(node("span", `números ${series.primeiro_numero} a ${series.ultimo_numero}`, "quiet"));
    const bar = node("div", null, "bar");
    for (const [fate, count] of Object.entries(series.contagem)) {
      const part = node("i", null, fate); part.style.flexGrow = count; part.title = `${fate}: ${count}`; bar.append(part);
    }
    box.append(bar, node("p", Object.entries(series.contagem).map(([fate, count]) => `${count} ${fate}`).join(" · "), "quiet"));
    if (series.abertos.length) box.append(node("p", "A explicar: " + series.abertos.map((one) => `${one.numero} (${one.destino})`).join(", ")));
    for (const range of series.inutilizaveis) {
      const button = node("button", `Inutilizar ${range.primeiro} a ${range.ultimo}`, "plain");
      button.onclick = () => guarded(async () => {
        const { status, data: made } = await call("POST", "/inutilizacoes", { organizacao: series.organizacao,
          tipo: series.modelo === "65" ? "NFCE" : "NFE", serie: series.serie, ...range, justificativa: "Numeros nao utilizados pelo emitente" });
        say(`${status} · ${made.estado} ${made.codigo || ""}`, "ok");
        await numbers();
      });
      box.append(button);
    }
    return box;
  }));
  if (!data.itens.length) $("ledger").replaceChildren(node("p", "Nenhum número dado ainda.", "quiet"));
}

async function pending() {
  const { data } = await call("GET", "/pendencias");
  $("count").textContent = data.itens.length || "";
  $("rights").replaceChildren(...data.itens.map((one) => {
    const item = node("li");
    const left = one.vencida ? "vencida" : `em ${Math.floor(one.segundos / 3600)} h ${Math.floor((one.segundos % 3600) / 60)} min`;
    item.append(tag(one.estado), node("span", ` ${one.direito}: ${left}. ${one.acao} `));
    const button = node("button", "Ver", "plain");
    button.onclick = () => guarded(async () => { open("documents"); await show(one.documento); });
    item.append(button);
    return item;
  }));
  if (!data.itens.length) $("rights").replaceChildren(node("li", "Nada pendente."));
}

async function faults() {
  const { data } = await call("GET", "/simulador/falhas");
  $("kinds").replaceChildren(...data.tipos.map((kind) => {
    const button = node("button", kind);
    button.dataset.fault = kind;
    button.onclick = () => guarded(async () => {
      await call("POST", "/simulador/falhas", { servico: $("service").value, quando: $("moment").value, tipo: kind, vezes: Number($("times").value) || 1 });
      say(`A próxima chamada a ${$("service").value} encontra: ${kind} ${$("moment").value}.`, "wait");
      await faults();
    });
    return button;
  }));
  $("line").replaceChildren(...data.falhas.map((one) => node("li", `${one.servico}: ${one.tipo} ${one.quando} de processar, ${one.vezes}×`)));
}

const TABS = { documents: list, numbers, pending, faults };

function open(name) {
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-current", String(tab.dataset.tab === name));
  for (const part of Object.keys(TABS)) $(part).hidden = part !== name;
  guarded(TABS[name]);
}

for (const tab of document.querySelectorAll("nav button")) tab.onclick = () => open(tab.dataset.tab);
$("emit").onsubmit = (event) => { event.preventDefault(); guarded(() => emit(false)); };
$("again").onclick = () => guarded(() => emit(true));
$("refresh").onclick = () => guarded(async () => { await list(); if (chosen) await show(chosen); });
$("cancel").onclick = () => guarded(() => act("cancelar", { justificativa: "Cancelado pela pagina de demonstracao", versao: Number($("cancel").dataset.versao) }, "Cancelando"));
$("letter").onclick = () => guarded(() => act("carta-correcao", { texto: "Correcao enviada pela pagina de demonstracao" }, "Enviando a carta"));
$("ask").onclick = () => guarded(() => act("conciliar", undefined, "Consultando a autoridade"));
$("clear").onclick = () => guarded(async () => { await call("DELETE", "/simulador/falhas"); say("Falhas esquecidas.", "ok"); await faults(); });
$("login").onsubmit = (event) => { event.preventDefault(); sessionStorage.setItem("token", $("token").value); location.reload(); };
guarded(list);
guarded(async () => {
  $("where").textContent = "Ambiente: começando…"; // the first visit starts the simulator, which takes seconds
  const { data } = await call("GET", "/ambiente");
  $("where").textContent = `Ambiente: ${data.ambiente}.`;
  document.querySelector('[data-tab="faults"]').hidden = data.ambiente !== "simulador";
});
