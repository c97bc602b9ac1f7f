// A WebAssembly memory, written by JavaScript and read by WebAssembly, and a worker with records of its own. usage: wasm.js MEBIBYTES
'use strict';
const { Worker, isMainThread, workerData } = require('worker_threads');
const pages = (workerData || Number(process.argv[2])) * 8; // half of it, in pages of 64 KiB
const next = (x) => (Math.imul(x, 1103515245) + 12345) & 0x7fffffff;

function memory() {
    const m = new WebAssembly.Memory({ initial: pages });
    // (module (import "m" "m" (memory 1)) (func (export "f") (param i32) (result i32) (i32.load (local.get 0))))
    const code = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 2, 8, 1, 1, 109, 1, 109, 2, 0, 1, 3, 2, 1, 0, 7, 5, 1, 1,
        102, 0, 0, 10, 9, 1, 7, 0, 32, 0, 40, 2, 0, 11]);
    const load = new WebAssembly.Instance(new WebAssembly.Module(code), { m: { m } }).exports.f;
    const words = new Uint32Array(m.buffer);
    for (let i = 0; i < words.length; i++) words[i] = Math.imul(i, 2654435761);
    let [x, sum] = [1, 0];
    for (let visit = 1; visit <= 16000; visit++) {
        x = next(x);
        const at = (x >>> 2) % words.length;
        sum = (Math.imul(sum, 31) + load(at * 4)) >>> 0;
        if (visit % 4 === 0) words[at] = x;
    }
    return sum;
}

function records() {
    const count = Math.floor(pages * 65536 / 300);
    const record = (i) => Buffer.from(String(i).padStart(9, '0').repeat(28)).toString('latin1');
    const held = globalThis.held = Array.from({ length: count }, (_, i) => record(i));
    let [x, sum] = [1, 0];
    for (let visit = 1; visit <= 16000; visit++) {
        x = next(x);
        const at = (x >>> 4) % count;
        sum = (Math.imul(sum, 31) + held[at].charCodeAt(x % 252)) >>> 0;
        if (visit % 4 === 0) held[at] = record(x);
    }
    return sum;
}

if (isMainThread) {
    const worker = new Worker(__filename, { workerData: Number(process.argv[2]) });
    console.log(`memory: ${memory()}`);
    worker.on('message', (sum) => {
        console.log(`records: ${sum}`);
        worker.postMessage('end');
    });
} else {
    // Until both are done, the records stay.
    const { parentPort } = require('worker_threads');
    parentPort.once('message', () => {});
    parentPort.postMessage(records());
}
