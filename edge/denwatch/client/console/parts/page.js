// The page: its parts, the socket to the console, what is kept for times without it.
import { createApp, markRaw, reactive } from "/vue.js";
import { alarm, remember, ring, startWorker } from "/alarm.js";
import bar from "/bar.js";
import composer from "/composer.js";
import feed from "/feed.js";
import find from "/find.js";
import nodes from "/nodes.js";
import plan from "/plan.js";
import sources from "/sources.js";
import subscriptions from "/subscriptions.js";

const t = denwatch.t;
const link = reactive({ isHere: false, wasHere: false, at: Date.now(), refused: "" });
const clock = reactive({ now: Date.now() });
const state = reactive({
  bar: {}, composer: {}, subscriptions: {}, feed: { cards: {}, order: [] }, nodes: {}, sources: {}, find: {}, plan: {}, history: {},
});
let ahead = 0; // ms that the console's clock is ahead of this one: this machine's may be wrong
let socket = null;
let pause = 500;
let heard = 0; // when the console last sent something; it sends at least every 5 s
let seen = null; // keys of the notifications that were shown before, here or in an earlier visit; null for none
const LOST = 15000; // ms without a word from the console: the socket is dead, whatever the browser says
const MOST_SEEN = 20000;

// What was shown last ---------------------------------------------------------------------------

function readKept(name) {
  try {
    return JSON.parse(denwatch.readSetting(name, "null"));
  } catch {
    return null;
  }
}

function keep() {
  keep.timer ??= setTimeout(() => {
    keep.timer = null;
    const { composer: _, history: __, ...rest } = state;
    denwatch.writeSetting("state", JSON.stringify({ at: clock.now, shown: rest }));
  }, 2000);
}

function restore() {
  const kept = readKept("state");
  if (!kept) return;
  for (const [part, values] of Object.entries(kept.shown)) Object.assign(state[part], values);
  state.bar.online = false;
  ahead = 0;
  link.at = kept.at;
  seen = new Set(Object.values(state.feed.cards).flatMap((card) => card.keys));
}

// What a person did, until the console has confirmed it. It survives a reload, is sent again after a drop-out (the
// console knows by its id what it has done already), and is shown while it waits. Nothing else is kept: a question
// (history, share, find) that nobody can answer now is refused, and the page says so.

const waiting = reactive({ entries: [] }); // {id, user, event, data, words, at, isLate, problem}
const WORDS = {
  have: (data, name) => {
    if (data.release) return t("Release: {0}", name);
    if (data.to) return t("Hand over: {0}", name);
    return data.silence ? t("Silence for 10 minutes: {0}", name) : t("I have it: {0}", name);
  },
  mute: (data, name) => t(data.muted ? "Mute: {0}" : "Show again: {0}", name),
  other: (data, name) => (data.end ? t("Unsubscribe: {0}", name) : WORDS.mute(data, name)),
  top: (_, name) => t("How many of: {0}", name),
  end: (_, name) => t("Unsubscribe: {0}", name),
  report: (data) => `${t("Report")}: ${data.text}`,
  send: (data) => `${t("Subscribe")}: ${data.text}`,
};

// Change the entry of an id, here and in what is kept (of which other tabs have their own part); null removes it.
function changeEntry(id, entry) {
  const change = (entries) => [...entries.filter((one) => one.id !== id), ...(entry ? [entry] : [])].sort((a, b) => a.at - b.at);
  waiting.entries = change(waiting.entries);
  denwatch.writeSetting("queue", JSON.stringify(change(readKept("queue") ?? [])));
}

function isOpen() {
  return socket?.readyState === WebSocket.OPEN && link.isHere;
}

// Returns whether it was sent.
function send(event, data, name) {
  if (event in WORDS) return sendSurely(event, data, WORDS[event](data, name ?? data.name));
  if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ event, data }));
    return true;
  }
  if (event !== "typed") link.refused = t("The console does not answer, and this needs it: try again when it does.");
  return false;
}

function sendSurely(event, data, words) {
  const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
  const entry = { id, user: state.bar.user, event, data, words, at: Date.now(), isLate: !isOpen(), problem: "" };
  changeEntry(id, entry);
  if (isOpen()) {
    transmit(entry);
    setTimeout(() => {
      if (waiting.entries.some((one) => one.id === id)) changeEntry(id, { ...entry, isLate: true });
    }, 2000);
    return true;
  }
  const said = { words: t("Stored in this browser. It is sent when the console answers."), wrong: false, text: data.text, count: id };
  if (event === "send") state.composer.result = said;
  if (event === "report") state.bar.reported = said;
  return false;
}

function transmit({ id, event, data }) {
  socket.send(JSON.stringify({ id, event, data }));
}

function flush() {
  waiting.entries = (readKept("queue") ?? waiting.entries).filter((one) => one.user === state.bar.user);
  for (const entry of waiting.entries) {
    entry.isLate = true; // nobody may look at the place where its outcome is shown
    if (!entry.problem) transmit(entry);
  }
}

// The console has done it, or says why not. What was late is said here: it is not where the person looks now.
function settle(id, problem) {
  const entry = waiting.entries.find((one) => one.id === id);
  if (entry) changeEntry(id, problem && entry.isLate ? { ...entry, problem } : null);
}

denwatch.discard = (id) => changeEntry(id, null);
denwatch.sendAgain = (id) => {
  const { event, data, words } = waiting.entries.find((one) => one.id === id);
  changeEntry(id, null);
  sendSurely(event, data, words);
};

// The socket -----------------------------------------------------------------------------------

function connect() {
  const own = (socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`));
  heard = Date.now();
  socket.onopen = () => {
    pause = 500;
    send("hello", { language: denwatch.language });
  };
  socket.onmessage = (event) => {
    heard = Date.now();
    receive(JSON.parse(event.data));
  };
  socket.onclose = () => lose(own);
}

async function lose(own) {
  if (own !== socket) return; // it was given up before
  own.onmessage = null;
  socket = null;
  link.isHere = false;
  own.close();
  setTimeout(connect, pause);
  pause = Math.min(5000, pause * 2);
  if (await isLoggedOut()) leave();
}

function watchSocket() {
  if (socket && Date.now() - heard > LOST) lose(socket);
}

async function isLoggedOut() {
  try {
    return (await fetch("/login/state")).status === 401;
  } catch {
    return false; // nobody answers
  }
}

// The login has ended: what was shown is forgotten, what is not sent waits for the next login of the same person.
function leave() {
  denwatch.writeSetting("state", "null");
  location.href = "/login";
}

function receive(message) {
  if (message.leave) return leave();
  if (message.now) {
    ahead = message.now - Date.now();
    clock.now = message.now;
    link.isHere = link.wasHere = true;
    link.refused = "";
    state.bar.user = message.user;
    flush();
  }
  if (message.done) settle(message.done, message.problem);
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
  if (seen.size > MOST_SEEN) seen = new Set(Object.values(state.feed.cards).flatMap((card) => card.keys));
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
denwatch.leave = () => {
  for (const name of ["state", "queue"]) denwatch.writeSetting(name, "null");
};
const app = createApp({
  components: { bar, composer, subscriptions, feed, find, nodes, sources, plan },
  template: `
  <bar v-bind="state.bar" :link-state="link" :clock="clock" :alarm="alarm" :waiting="waiting.entries"></bar>
  <main id="main">
    <div class="side"><composer v-bind="state.composer" :here="link.isHere"></composer>
      <subscriptions v-bind="state.subscriptions"></subscriptions></div>
    <feed v-bind="state.feed" :clock="clock" :alarm="alarm" :history="state.history" :old="!link.isHere || !state.bar.online"></feed>
    <div class="side"><nodes v-bind="state.nodes"></nodes><plan v-bind="state.plan" :cards="state.feed.cards"></plan>
      <find v-bind="state.find" :sources="state.sources.sources"></find><sources v-bind="state.sources"></sources></div>
  </main>`,
  setup: () => ({ state, link, clock, alarm, waiting }),
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
setInterval(() => {
  clock.now = Date.now() + ahead;
  watchSocket();
}, 1000);
addEventListener("offline", () => socket && lose(socket)); // the browser keeps a dead socket open for minutes
waiting.entries = (readKept("queue") ?? []).filter((one) => one.user === state.bar.user).map((one) => ({ ...one, isLate: true }));
connect();
startWorker();
remember();
