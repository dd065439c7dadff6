"use strict";
// A passenger's app in small: it draws what the API says and never decides anything by itself.

const ROUTE = "/api/governance/ride/request";
const REFRESH = 2000;
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const map = { fences: [], drivers: [], me: { lat: -23.5505, lng: -46.6333 }, ride: null, box: null };
let token = null;
let socket = null;
let countdown = null;

async function call(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: body ? { "Content-Type": "application/json" } : {},
    body: body && JSON.stringify(body),
  });
  const data = await answer.json();
  return { status: answer.status, data };
}

function note(text) {
  const line = document.createElement("li");
  line.textContent = text;
  $("log").prepend(line);
}

function say(text, kind = "") {
  $("state").textContent = text;
  $("state").className = kind;
}

function hold(next) {
  token = next;
  for (const id of ["confirm", "twice"]) $(id).disabled = !next;
  $("cancel").disabled = !next;
}

async function ask(event) {
  event.preventDefault();
  close();
  const { status, data } = await call("POST", ROUTE, {
    passengerId: $("passenger").value,
    type: "comunidade",
    passengerLat: map.me.lat,
    passengerLng: map.me.lng,
    origin: "Mapa",
    destination: "Destino",
    price: Number($("price").value.replace(",", ".")),
  });
  note(`${status} pedir: ${data.message ?? data.detail}`);
  if (status === 202) {
    hold(data.confirmationToken);
    wait(data);
    follow(data.confirmationToken);
  } else if (data.success) {
    hold(null);
    rode(data.ride.id, `${data.message}: ${data.ride.id}`, data.ride);
  } else say(data.message ?? data.detail, "bad");
  await look();
}

function wait(data) {
  const until = Date.parse(data.expiresAt);
  const tick = () => {
    const left = Math.max(0, Math.round((until - Date.now()) / 1000));
    say(`${data.message} (${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")})`, "wait");
  };
  tick();
  clearInterval(countdown);
  countdown = setInterval(tick, 1000);
}

async function confirmOnce() {
  const { status, data } = await call("POST", ROUTE, { passengerId: $("passenger").value, confirmationToken: token });
  note(`${status} confirmar: ${data.message} ${data.rideId ?? data.ride?.id ?? ""}`);
  if (data.success) rode(data.rideId ?? data.ride.id, `${data.message}: ${data.rideId ?? data.ride.id}`, data.ride);
  else say(data.message, "bad");
  return { status, ride: data.rideId ?? data.ride?.id };
}

async function confirmTwice() {
  const answers = await Promise.all([confirmOnce(), confirmOnce()]);
  const rides = new Set(answers.map((answer) => answer.ride));
  note(`Duas confirmações ao mesmo tempo: ${answers.map((a) => a.status).join(" e ")}, ${rides.size} corrida`);
  await look();
}

async function cancelToken() {
  const { status, data } = await call("POST", "/api/governance/ride/confirmation/cancel", {
    passengerId: $("passenger").value,
    confirmationToken: token,
  });
  note(`${status} cancelar: ${data.message ?? data.state}`);
}

function rode(id, text, ride) {
  clearInterval(countdown);
  $("cancel").disabled = true;
  say(text, "ok");
  if (ride) map.ride = ride;
}

// The token goes in the first message, not in the address.
function follow(mine) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/api/governance/ride/confirmation/live`);
  const passenger = $("passenger").value;
  socket.onopen = (opened) => opened.target.send(JSON.stringify({ passengerId: passenger, confirmationToken: mine }));
  socket.onmessage = (message) => {
    const told = JSON.parse(message.data);
    note(`ao vivo: ${told.event} ${told.rideId ?? ""}`);
    if (mine !== token || !["expired", "cancelled"].includes(told.event)) return;
    clearInterval(countdown);
    hold(null);
    say(told.event === "expired" ? "O token expirou; peça de novo." : "O token foi cancelado.", "bad");
  };
}

function close() {
  clearInterval(countdown);
  socket?.close();
  socket = null;
  map.ride = null;
}

async function look() {
  const [fences, drivers] = await Promise.all([
    call("GET", "/api/governance/communities"),
    call("GET", "/api/governance/drivers?limit=2000"),
  ]);
  if (fences.status !== 200 || drivers.status !== 200) return say("O servidor não mostrou o mapa.", "bad");
  map.fences = fences.data.features;
  map.drivers = drivers.data.items;
  if (!map.fences.length && !map.warned) {
    map.warned = true; // once: the map is looked at again and again, and other things are said meanwhile
    say("Não há comunidades no mapa; umavez corridas demo põe comunidades e motoristas.");
  }
  draw();
}

function bounds() {
  const places = map.fences.flatMap((f) => f.geometry.coordinates.flat(2)).concat(map.drivers.map((d) => [d.lng, d.lat]));
  places.push([map.me.lng, map.me.lat]);
  const xs = places.map((p) => p[0]), ys = places.map((p) => p[1]);
  const box = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  const pad = Math.max(box[2] - box[0], box[3] - box[1], 0.02) * 0.06;
  return [box[0] - pad, box[1] - pad, box[2] + pad, box[3] + pad];
}

// Degrees to pixels: a degree of longitude is as short as the latitude makes it.
function view() {
  const canvas = $("map"), [west, south, east, north] = (map.box ??= bounds());
  const shrink = Math.cos(((south + north) / 2) * (Math.PI / 180));
  const scale = Math.min(canvas.clientWidth / ((east - west) * shrink), canvas.clientHeight / (north - south));
  const left = (canvas.clientWidth - (east - west) * shrink * scale) / 2;
  const top = (canvas.clientHeight - (north - south) * scale) / 2;
  return {
    to: (lng, lat) => [left + (lng - west) * shrink * scale, top + (north - lat) * scale],
    from: (x, y) => ({ lng: west + (x - left) / (shrink * scale), lat: north - (y - top) / scale }),
  };
}

function draw() {
  const canvas = $("map"), ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const { to } = view();
  map.fences.forEach((fence, number) => drawFence(pen, to, fence, number));
  const given = map.drivers.find((d) => map.ride && d.rideId === map.ride.id);
  if (given) drawRide(pen, to, given);
  for (const driver of map.drivers) {
    const color = !driver.available ? "--off" : driver.rideId ? "--busy" : "--free";
    drawDot(pen, to(driver.lng, driver.lat), 5, css(color));
  }
  drawDot(pen, to(map.me.lng, map.me.lat), 8, css("--me"));
  $("where").textContent = `Passageiro em ${map.me.lat.toFixed(4)}, ${map.me.lng.toFixed(4)}`;
}

function drawFence(pen, to, fence, number) {
  const hue = (number * 67 + 150) % 360;
  pen.beginPath();
  for (const ring of fence.geometry.coordinates.flat()) {
    ring.forEach((place, n) => (n ? pen.lineTo(...to(...place)) : pen.moveTo(...to(...place))));
    pen.closePath();
  }
  pen.fillStyle = `hsla(${hue}, 45%, 50%, .18)`;
  pen.strokeStyle = `hsl(${hue}, 45%, 45%)`;
  pen.lineWidth = 1.5;
  pen.fill("evenodd");
  pen.stroke();
  const corners = fence.geometry.coordinates[0][0].map((place) => to(...place));
  pen.fillStyle = css("--ink");
  pen.font = "600 13px system-ui, sans-serif";
  pen.textAlign = "center";
  const [xs, ys] = [0, 1].map((axis) => corners.map((corner) => corner[axis]));
  const top = Math.min(...ys), height = Math.max(...ys) - top;
  pen.fillText(fence.properties.name, (Math.min(...xs) + Math.max(...xs)) / 2, top + height * 0.25);
}

function drawRide(pen, to, driver) {
  pen.beginPath();
  pen.moveTo(...to(driver.lng, driver.lat));
  pen.lineTo(...to(map.me.lng, map.me.lat));
  pen.strokeStyle = css("--busy");
  pen.setLineDash([6, 4]);
  pen.lineWidth = 2;
  pen.stroke();
  pen.setLineDash([]);
}

function drawDot(pen, [x, y], size, color) {
  pen.beginPath();
  pen.arc(x, y, size, 0, 2 * Math.PI);
  pen.fillStyle = color;
  pen.strokeStyle = css("--paper");
  pen.lineWidth = 2;
  pen.fill();
  pen.stroke();
}

function choose(event) {
  map.me = view().from(event.offsetX, event.offsetY);
  draw();
}

function nudge(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
  if (!step) return;
  event.preventDefault();
  map.me = { lat: map.me.lat + step[0] * 0.001, lng: map.me.lng + step[1] * 0.001 };
  draw();
}

function safely(work) {
  return (event) => Promise.resolve(work(event)).catch(() => say("O servidor não respondeu; tente de novo.", "bad"));
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); safely(ask)(event); });
$("confirm").addEventListener("click", safely(async () => { await confirmOnce(); await look(); }));
$("twice").addEventListener("click", safely(confirmTwice));
$("cancel").addEventListener("click", safely(cancelToken));
$("map").addEventListener("click", choose);
$("map").addEventListener("keydown", nudge);
window.addEventListener("resize", draw);
safely(look)();
setInterval(() => document.hidden || safely(look)(), REFRESH);
