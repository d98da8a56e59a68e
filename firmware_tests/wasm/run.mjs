// Runs one program in the WebAssembly MicroPython, on files that are copied into its memory.
//
// usage: node run.mjs JOB   where JOB is a JSON object:
//   micropython  the path of micropython.mjs
//   files        {path inside: path outside}
//   path         what is put in front of sys.path
//   code         the program; the exit code is its variable `exit_code`
//
// There is no sys.argv and no sys.exit inside, hence the variable. Heap: it grows as needed.
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { pathToFileURL } from "node:url";

const job = JSON.parse(process.argv[2]);
const { loadMicroPython } = await import(pathToFileURL(job.micropython).href);
const python = await loadMicroPython({
  stdout: (line) => process.stdout.write(line + "\n"),
  stderr: (line) => process.stdout.write(line + "\n"),
});
for (const [inside, outside] of Object.entries(job.files)) {
  python.FS.mkdirTree(dirname(inside));
  python.FS.writeFile(inside, readFileSync(outside));
}
try {
  python.runPython(`import sys\nsys.path[:0] = ${JSON.stringify(job.path)}`);
  python.runPython(job.code);
  process.exitCode = python.globals.get("exit_code");
} catch (error) {
  process.stdout.write(`${error.message}\n`);
  process.exitCode = 1;
}
