// The alarm: sound and vibration by severity, notifications by the service worker, a screen that stays on.
// A browser makes no sound before somebody has touched the page. An alarm that was on when the page was closed is
// therefore on again with the first touch; until then it is waiting, the page says so, and what it missed is played then.
import { reactive } from "/vue.js";

// Tones by severity: [frequency in Hz, start, length in s]; vibration in ms.
const TONES = [
  [],
  [[520, 0, 0.18]],
  [[660, 0, 0.16], [660, 0.26, 0.16]],
  [[880, 0, 0.16], [660, 0.2, 0.16], [880, 0.4, 0.16], [880, 0.8, 0.16], [660, 1.0, 0.16], [880, 1.2, 0.16]],
];
const GESTURES = ["pointerup", "keydown"]; // after which a browser allows sound
const VIBRATION = [[], [120], [200, 100, 200], [400, 120, 400, 120, 400]];

export const alarm = reactive({ isOn: false, isWaiting: false, isAwake: false, hasNotices: false, rung: 0 });
let audio = null;
let missed = 0; // the worst severity that should have been heard while the alarm was waiting
let lock = null;
let worker = null;

export async function startWorker() {
  if (!("serviceWorker" in navigator)) return; // without TLS only this machine has one
  try {
    await navigator.serviceWorker.register("/worker.js");
    worker = await navigator.serviceWorker.ready;
  } catch {
    worker = null; // a browser that forbids it: the page works without
  }
}

export async function turnOn() {
  denwatch.writeSetting("alarm", "on");
  await arm();
  if ("Notification" in globalThis && Notification.permission === "default") await Notification.requestPermission();
  readPermission();
  play(1);
}

export async function turnOff() {
  denwatch.writeSetting("alarm", "off");
  alarm.isOn = alarm.isWaiting = false;
  missed = 0;
  await keepAwake(false);
}

async function arm() {
  audio ??= new AudioContext();
  await audio.resume();
  alarm.isOn = true;
  alarm.isWaiting = false;
  await keepAwake(true);
}

function readPermission() {
  alarm.hasNotices = globalThis.Notification?.permission === "granted";
}

// The alarm was on when the page was left: it is on again as soon as the browser allows a sound.
export function remember() {
  if (denwatch.readSetting("alarm", "off") !== "on") return;
  readPermission(); // a notification needs no touch
  alarm.isWaiting = true;
  if (navigator.userActivation?.hasBeenActive) wakeUp();
  else for (const kind of GESTURES) addEventListener(kind, wakeUp, true);
}

async function wakeUp(event) {
  if (event?.target.closest?.(".tool.alarm")) return; // the button itself says what is wanted
  for (const kind of GESTURES) removeEventListener(kind, wakeUp, true);
  if (!alarm.isWaiting) return;
  await arm();
  play(missed || 1);
  missed = 0;
}

async function keepAwake(isWanted) {
  try {
    if (isWanted) lock = await navigator.wakeLock?.request("screen");
    else await lock?.release();
  } catch {
    lock = null; // the battery is low, or the page is hidden
  }
  alarm.isAwake = isWanted && !!lock;
}

document.addEventListener("visibilitychange", () => {
  if (alarm.isOn && document.visibilityState === "visible") keepAwake(true);
});

function play(severity) {
  if (!alarm.isOn || !audio) return;
  for (const [frequency, start, length] of TONES[severity]) {
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    const at = audio.currentTime + start;
    tone.frequency.value = frequency;
    volume.gain.setValueAtTime(0.0001, at);
    volume.gain.exponentialRampToValueAtTime(severity === 3 ? 0.9 : 0.4, at + 0.02);
    volume.gain.exponentialRampToValueAtTime(0.0001, at + length);
    tone.connect(volume).connect(audio.destination);
    tone.start(at);
    tone.stop(at + length + 0.05);
  }
}

// One card has something new: be heard and felt, and say it where a locked screen shows it.
export async function ring(card, words) {
  if (!alarm.isOn && !alarm.isWaiting) return;
  alarm.rung += 1;
  if (alarm.isWaiting) missed = Math.max(missed, card.severity);
  play(card.severity);
  if (card.severity && alarm.isOn) navigator.vibrate?.(VIBRATION[card.severity]);
  if (!alarm.hasNotices || !worker) return;
  if (document.visibilityState === "visible" && card.severity < 2) return;
  await worker.showNotification(words.title, {
    body: words.body,
    tag: `denwatch-${card.key}`,
    renotify: true,
    requireInteraction: card.severity === 3,
    vibrate: VIBRATION[card.severity],
    icon: "/icon-192.png", // a phone draws no SVG here
  });
}
