// The page: its parts, the socket to the console, what is kept for times without it.
import { createApp, markRaw, reactive } from "/vue.js";
import { alarm, ring, startWorker } from "/alarm.js";
import bar from "/bar.js";
import composer from "/composer.js";
import feed from "/feed.js";
import find from "/find.js";
import nodes from "/nodes.js";
import plan from "/plan.js";
import sources from "/sources.js";
import subscriptions from "/subscriptions.js";

const t = denwatch.t;
const link = reactive({ isHere: false, wasHere: false, at: Date.now() });
const clock = reactive({ now: Date.now() });
const state = reactive({
  bar: {}, composer: {}, subscriptions: {}, feed: { cards: {}, order: [] }, nodes: {}, sources: {}, find: {}, plan: {}, history: {},
});
let ahead = 0; // ms that the console's clock is ahead of this one: this machine's may be wrong
let socket = null;
let pause = 500;
let seen = null; // keys of the notifications that were there before; null until the first message

// What was shown last, and what was asked while nobody answered -------------------------------

function readKept(name) {
  try {
    return JSON.parse(denwatch.readSetting(name, "null"));
  } catch {
    return null;
  }
}

function keep() {
  clearTimeout(keep.timer);
  keep.timer = setTimeout(() => {
    const { composer: _, history: __, ...rest } = state;
    denwatch.writeSetting("state", JSON.stringify({ at: clock.now, shown: rest }));
  }, 2000);
}

function forget() {
  for (const name of ["state", "queue"]) denwatch.writeSetting(name, "null");
}

function restore() {
  const kept = readKept("state");
  if (!kept) return;
  for (const [part, values] of Object.entries(kept.shown)) Object.assign(state[part], values);
  state.bar.online = false;
  ahead = 0;
  link.at = kept.at;
}

function send(event, data) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ event, data }));
  else if (event === "send") {
    denwatch.writeSetting("queue", JSON.stringify([...(readKept("queue") ?? []), data]));
    const count = (state.composer.result?.count ?? 0) + 1;
    state.composer.result = { words: t("Stored in this browser. It is sent when the console answers."), wrong: false, count: `q${count}` };
  }
}

function flush() {
  for (const data of readKept("queue") ?? []) send("send", { ...data, queued: true });
  denwatch.writeSetting("queue", "null");
}

// The socket -----------------------------------------------------------------------------------

function connect() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
  socket.onopen = () => {
    pause = 500;
    seen = null;
    send("hello", { language: denwatch.language });
  };
  socket.onmessage = (event) => receive(JSON.parse(event.data));
  socket.onclose = async () => {
    link.isHere = false;
    setTimeout(connect, pause);
    pause = Math.min(5000, pause * 2);
    if (await isLoggedOut()) leave();
  };
}

async function isLoggedOut() {
  try {
    return (await fetch("/login/state")).status === 401;
  } catch {
    return false; // nobody answers
  }
}

function leave() {
  forget();
  location.href = "/login";
}

function receive(message) {
  if (message.leave) return leave();
  if (message.now) {
    ahead = message.now - Date.now();
    clock.now = message.now;
    link.isHere = link.wasHere = true;
    flush();
  }
  link.at = clock.now;
  for (const [part, values] of Object.entries(message.show ?? {})) {
    for (const [key, value] of Object.entries(values)) {
      if (key === "+cards") changeCards(value);
      else if (key === "cards") {
        for (const card of Object.values(value)) markRaw(card);
        state.feed.cards = value;
      } else state[part][key] = value;
    }
    if (part === "feed") announce(values);
  }
  keep();
}

function changeCards(changes) {
  for (const [key, card] of Object.entries(changes)) {
    if (card === null) delete state.feed.cards[key];
    else state.feed.cards[key] = markRaw(card);
  }
}

// Be heard for what is new: the worst of it, once.
function announce(values) {
  const changed = Object.values(values["+cards"] ?? values.cards ?? {}).filter(Boolean);
  const fresh = [];
  const isFirst = seen === null;
  seen ??= new Set();
  for (const card of changed) {
    if (card.keys.some((key) => !seen.has(key))) fresh.push(card);
    for (const key of card.keys) seen.add(key);
  }
  if (!fresh.length) return;
  fresh.sort((a, b) => b.severity - a.severity);
  const worst = fresh[0];
  dispatchEvent(new CustomEvent("denwatch-news", { detail: { fresh, isFirst } }));
  if (isFirst || (worst.claim?.silent ?? 0) > clock.now) return; // silence is for the ears
  const title = `${t(denwatch.SEVERITIES[worst.severity])}: ${worst.title}`;
  ring(worst, { title, body: worst.values.slice(0, 3).map((v) => `${v.name} ${v.value}`).join(", ") });
}

// The page -------------------------------------------------------------------------------------

restore();
denwatch.send = send;
denwatch.leave = forget;
const app = createApp({
  components: { bar, composer, subscriptions, feed, find, nodes, sources, plan },
  template: `
  <bar v-bind="state.bar" :link-state="link" :clock="clock" :alarm="alarm"></bar>
  <main id="main">
    <div class="side"><composer v-bind="state.composer" :here="link.isHere"></composer>
      <subscriptions v-bind="state.subscriptions"></subscriptions></div>
    <feed v-bind="state.feed" :clock="clock" :alarm="alarm" :history="state.history" :old="!link.isHere || !state.bar.online"></feed>
    <div class="side"><nodes v-bind="state.nodes"></nodes><plan v-bind="state.plan" :cards="state.feed.cards"></plan>
      <find v-bind="state.find" :sources="state.sources.sources"></find><sources v-bind="state.sources"></sources></div>
  </main>`,
  setup: () => ({ state, link, clock, alarm }),
});
Object.assign(app.config.globalProperties, {
  t, send, icon: denwatch.icon, span: denwatch.span, time: denwatch.clock,
});
// Only what shows a time is drawn anew every second.
app.component("age", {
  props: { at: Number, until: Number, words: String },
  template: `<span>{{ t(words, span(until ? until - clock.now : clock.now - at)) }}</span>`,
  setup: () => ({ clock }),
});
app.mount("#app");
// A shared subscription is behind the #, which browsers do not send.
const shared = new URLSearchParams(location.hash.slice(1)).get("ask");
if (shared) dispatchEvent(new CustomEvent("denwatch-write", { detail: { words: shared } }));
setInterval(() => (clock.now = Date.now() + ahead), 1000);
connect();
startWorker();
