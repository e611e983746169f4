// Files on their way to the kernel: judged and, if they are large, made smaller here, then sent in chunks.
// What becomes of a file is always said: it lands, or there is a line that says why not.

const PICTURE_NAME = /\.(png|jpe?g|jfif|webp|gif|bmp|dib|tiff?|pp?m|ico|jp2|avif|heic|heif|svg)$/i;
const SLOW_MS = 3000;
const WORD_OF_GIVING_UP = "was not sent to the end";

const count = (number) => Number(number).toLocaleString("en-US");

function sizeText(bytes) {
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return bytes >= 1e3 ? `${(bytes / 1e3).toFixed(1)} kB` : `${bytes} bytes`;
}

async function decode(file) {
  try {
    return await createImageBitmap(file); // turned as the camera says
  } catch {
    return null; // no picture, a damaged one, or one of a format that this browser does not know
  }
}

async function shrink(picture, side) {
  const scale = Math.min(1, side / Math.max(picture.width, picture.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white"; // what shows through a transparent picture, here as for the model
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
  if (!blob) throw new Error("the browser could not make it smaller: try a smaller one");
  return blob;
}

// Returns {blob, note}: the file itself when it is within the limits. Throws an Error that says what is wrong.
async function prepare(file, limits) {
  if (file.size === 0) throw new Error("it is empty, or a folder: drop picture files");
  const picture = await decode(file);
  if (!picture) {
    if (!file.type.startsWith("image/") && !PICTURE_NAME.test(file.name)) {
      const kind = file.type || "unknown type";
      throw new Error(`it is no picture (${kind}, ${sizeText(file.size)}): drop PNG, JPEG, WebP, GIF, BMP or TIFF`);
    }
    if (file.size > limits.max_bytes) {
      const limit = `the limit is ${sizeText(limits.max_bytes)}`;
      throw new Error(`it has ${sizeText(file.size)}, ${limit}, and this browser cannot read it: make it smaller`);
    }
    return { blob: file, note: "" }; // the kernel knows more formats
  }
  try {
    const { width, height } = picture;
    if (file.size <= limits.as_it_is && width * height <= limits.max_pixels) return { blob: file, note: "" };
    const blob = await shrink(picture, limits.shrunk_side);
    return { blob, note: `made smaller from ${sizeText(file.size)}, ${count(width)} x ${count(height)}` };
  } finally {
    picture.close();
  }
}

// Sends one file after the other. `tell()` is called when something is to be shown anew.
function createUploads(model, limits, tell) {
  const jobs = []; // {key, name, blob, size, got, slow, ended, resolve, wake}
  const prefix = Math.random().toString(36).slice(2);
  let line = Promise.resolve();
  let number = 0;
  let dead = false;

  async function send(job, batch) {
    const { blob, note } = await prepare(job.file, limits());
    const { chunk, window } = limits();
    const bytes = new Uint8Array(await blob.arrayBuffer());
    if (job.ended) return;
    job.size = bytes.length;
    job.chunkAt = (at) => {
      const piece = bytes.slice(at, at + chunk).buffer;
      model.send({ kind: "chunk", upload: job.key, at }, undefined, [piece]);
    };
    model.send({ kind: "begin", upload: job.key, name: job.name, bytes: job.size, note, batch });
    tell();
    for (let at = 0; at < job.size && !job.ended; at += chunk) {
      while (at - job.got >= window * chunk && !job.ended) await next(job);
      if (!job.ended) job.chunkAt(at);
    }
    while (!job.ended) await next(job);
  }

  // Waits for word from the kernel. A long silence means that a cell runs, or that a message was lost: ask.
  function next(job) {
    return new Promise((done) => {
      const timer = setTimeout(() => {
        job.slow = true;
        model.send({ kind: "ask", upload: job.key });
        tell();
        done();
      }, SLOW_MS);
      job.wake = () => {
        clearTimeout(timer);
        done();
      };
    });
  }

  function end(job, problem = "") {
    if (job.ended) return;
    job.ended = true;
    job.problem = problem;
    job.wake();
    tell();
  }

  async function run(job, batch) {
    try {
      if (dead) throw new Error("the kernel of this zone has ended: run its cell again, then drop it");
      await send(job, batch);
    } catch (error) {
      end(job, `${job.name}: ${error.message}`);
    }
    if (!job.problem) jobs.splice(jobs.indexOf(job), 1);
    tell();
  }

  return {
    jobs,
    // Takes the files of one drop. `label` names those that have no good name of their own.
    add(files, label) {
      const batch = `${prefix}-${++number}`;
      const made = [...files].map((file, i) => {
        const key = `${batch}-${i}`;
        const name = label || file.name || "picture";
        return { key, name, file, size: 0, got: 0, slow: false, ended: false, problem: "", wake: () => {} };
      });
      jobs.splice(0, jobs.length, ...jobs.filter((job) => !job.problem), ...made); // old messages were read
      tell();
      for (const job of made) line = line.then(() => job.ended || run(job, batch));
      line = line.then(() => dead || model.send({ kind: "end", batch }));
    },
    cancel(job) {
      model.send({ kind: "drop", upload: job.key });
      end(job, `${job.name} ${WORD_OF_GIVING_UP}`);
    },
    fail(text) {
      jobs.push({ key: `${prefix}-${++number}`, ended: true, problem: text });
      tell();
    },
    forget(job) {
      jobs.splice(jobs.indexOf(job), 1);
      tell();
    },
    close() {
      dead = true;
      for (const job of jobs) {
        end(job, `${job.name} ${WORD_OF_GIVING_UP}: the kernel has ended. Run the cell of this zone again, then drop it`);
      }
    },
    // Returns whether the message was about an upload.
    receive(message) {
      const key = message.got || message.landed || message.refused || message.unknown;
      const job = jobs.find((one) => one.key === key && !one.ended);
      if (!key) return false;
      if (!job) return true; // of another page
      job.slow = false;
      if (message.landed) end(job);
      else if (message.refused) end(job, message.text);
      else if (message.unknown) end(job, `${job.name} ${WORD_OF_GIVING_UP}: the upload was interrupted. Drop it again`);
      else {
        job.got = message.bytes;
        message.missing.forEach((at) => job.chunkAt(at));
        job.wake();
        tell();
      }
      return true;
    },
  };
}
