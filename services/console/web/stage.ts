// The sources of a recording: screen, camera and microphone, combined into one stream.

import { pause } from "./session";

export type Wanted = { screen: boolean; camera: boolean; microphone: boolean; sound: boolean };

export type Stage = { stream: MediaStream; stop: () => void; ended: Promise<void> };

const most = { width: 1920, height: 1080 };

export async function open(wanted: Wanted): Promise<Stage> {
  const sources: MediaStream[] = [];
  const stops: (() => void)[] = [() => sources.forEach((s) => s.getTracks().forEach((t) => t.stop()))];
  const stop = () => stops.forEach((f) => f());
  try {
    let screen: MediaStream | undefined;
    let own: MediaStream | undefined;
    if (wanted.screen) {
      screen = await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: 30 }, audio: wanted.sound });
      sources.push(screen);
    }
    if (wanted.camera || wanted.microphone) {
      own = await navigator.mediaDevices.getUserMedia({
        video: wanted.camera && { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 30 } },
        audio: wanted.microphone && { echoCancellation: true, noiseSuppression: true },
      });
      sources.push(own);
    }
    const shown = screen?.getVideoTracks()[0];
    const face = own?.getVideoTracks()[0];
    const picture = shown && face ? compose(shown, face, stops) : (shown ?? face)!;
    const sounds = sources.filter((s) => s.getAudioTracks().length);
    const stream = new MediaStream([picture]);
    if (sounds.length === 1) stream.addTrack(sounds[0]!.getAudioTracks()[0]!);
    if (sounds.length > 1) stream.addTrack(mix(sounds, stops));
    const ended = new Promise<void>((done) => (shown ?? face)!.addEventListener("ended", () => done(), { once: true }));
    return { stream, stop, ended };
  } catch (error) {
    stop();
    throw error;
  }
}

function mix(sources: MediaStream[], stops: (() => void)[]): MediaStreamTrack {
  const audio = new AudioContext();
  const out = audio.createMediaStreamDestination();
  for (const s of sources) audio.createMediaStreamSource(s).connect(out);
  void audio.resume();
  stops.push(() => void audio.close());
  return out.stream.getAudioTracks()[0]!;
}

// Draws the screen with the camera in a circle at the lower left. It reads frames as a
// stream if the browser supports that, because timers and animation frames stop while
// another tab is active, and people who record a screen usually switch tabs.
function compose(screen: MediaStreamTrack, face: MediaStreamTrack, stops: (() => void)[]): MediaStreamTrack {
  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d", { alpha: false })!;
  const { width = most.width, height = most.height } = screen.getSettings();
  const scale = Math.min(1, most.width / width, most.height / height);
  canvas.width = Math.round((width * scale) / 2) * 2;
  canvas.height = Math.round((height * scale) / 2) * 2;

  const draw = (back: CanvasImageSource | undefined, front: CanvasImageSource | undefined, w: number, h: number) => {
    if (back) pen.drawImage(back, 0, 0, canvas.width, canvas.height);
    if (!front || !w) return;
    const size = Math.min(canvas.width, canvas.height) * 0.26;
    const gap = size * 0.12;
    const side = Math.min(w, h);
    pen.save();
    pen.beginPath();
    pen.arc(gap + size / 2, canvas.height - gap - size / 2, size / 2, 0, 2 * Math.PI);
    pen.clip();
    pen.drawImage(front, (w - side) / 2, (h - side) / 2, side, side, gap, canvas.height - gap - size, size, size);
    pen.restore();
  };

  const Processor = (globalThis as { MediaStreamTrackProcessor?: new (o: { track: MediaStreamTrack }) => { readable: ReadableStream<VideoFrame> } }).MediaStreamTrackProcessor;
  if (Processor) {
    const latest: (VideoFrame | undefined)[] = [undefined, undefined];
    let over = false;
    stops.push(() => {
      over = true;
      latest.forEach((f) => f?.close());
    });
    [screen, face].forEach((track, i) => {
      const copy = track.clone();
      const frames = new Processor({ track: copy }).readable.getReader();
      const draws = async () => {
        for (let next = await frames.read(); !next.done; next = await frames.read()) {
          if (over) return next.value.close();
          latest[i]?.close();
          latest[i] = next.value;
          if (i === 1) draw(latest[0], latest[1], latest[1]?.displayWidth ?? 0, latest[1]?.displayHeight ?? 0);
        }
      };
      // A stream that ends during the delivery of a frame drops the frame without closing
// it, so wait for the frame. Limit the wait, because a still screen delivers no frame.
      const last = draws();
      stops.push(() => void Promise.race([last, pause(500)]).then(() => copy.stop()));
    });
  } else {
    const [back, front] = [screen, face].map((track) => {
      const v = document.createElement("video");
      v.muted = true;
      v.playsInline = true;
      v.srcObject = new MediaStream([track]);
      void v.play();
      return v;
    }) as [HTMLVideoElement, HTMLVideoElement];
    const timer = setInterval(() => draw(back.videoWidth ? back : undefined, front, front.videoWidth, front.videoHeight), 33);
    stops.push(() => clearInterval(timer));
  }
  return canvas.captureStream(30).getVideoTracks()[0]!;
}
