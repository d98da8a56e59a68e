// The alarm: sound and vibration by severity, notifications by the service worker, a screen that stays on.
// A browser makes no sound before somebody has touched the page: until then the alarm is off, and the page says so.
import { reactive } from "/vue.js";

// Tones by severity: [frequency in Hz, start, length in s]; vibration in ms.
const TONES = [
  [],
  [[520, 0, 0.18]],
  [[660, 0, 0.16], [660, 0.26, 0.16]],
  [[880, 0, 0.16], [660, 0.2, 0.16], [880, 0.4, 0.16], [880, 0.8, 0.16], [660, 1.0, 0.16], [880, 1.2, 0.16]],
];
const VIBRATION = [[], [120], [200, 100, 200], [400, 120, 400, 120, 400]];

export const alarm = reactive({ isOn: false, isAwake: false, hasNotices: false, rung: 0 });
let audio = null;
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
  audio ??= new AudioContext();
  await audio.resume();
  alarm.isOn = true;
  if ("Notification" in globalThis) {
    const answer = Notification.permission === "default" ? await Notification.requestPermission() : Notification.permission;
    alarm.hasNotices = answer === "granted";
  }
  await keepAwake(true);
  play(1);
}

export async function turnOff() {
  alarm.isOn = false;
  await keepAwake(false);
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
  if (!alarm.isOn) return;
  alarm.rung += 1;
  play(card.severity);
  if (card.severity) navigator.vibrate?.(VIBRATION[card.severity]);
  if (!alarm.hasNotices || !worker) return;
  if (document.visibilityState === "visible" && card.severity < 2) return;
  await worker.showNotification(words.title, {
    body: words.body,
    tag: `denwatch-${card.key}`,
    renotify: true,
    requireInteraction: card.severity === 3,
    vibrate: VIBRATION[card.severity],
    icon: "/icon.svg",
  });
}
