// Large arrays in Node.js: typed arrays outside the JavaScript heap, plain arrays, objects and a Map inside it.
//
// usage: node arrays.js BYTES
'use strict';
const crypto = require('crypto');
const bytes = Number(process.argv[2]);

const typed = [];
const words = 1 << 17;
for (let used = 0; used < bytes * 0.5; used += words * 8) {
  const block = new Float64Array(words);
  for (let i = 0; i < words; i++) block[i] = (typed.length * 31 + i * 7) % 1009;
  typed.push(block);
}
const hash = crypto.createHash('sha256');
for (const block of typed) hash.update(new Uint8Array(block.buffer));
console.log('typed', typed.length, hash.digest('hex'));

const rows = [];
const count = Math.floor((bytes * 0.4) / 140);
for (let i = 0; i < count; i++) rows.push({ id: i, name: 'row-' + ((i * 2654435761) % 4294967296), value: i % 97 });
console.log('rows', rows.length, rows.reduce((sum, row) => sum + row.value + row.name.length, 0));

const index = new Map();
for (let i = 0; i < count; i += 4) index.set(rows[i].name, rows[i]);
let found = 0;
for (let i = 0; i < count; i += 8) found += index.get(rows[i].name).id;
console.log('index', index.size, found);

rows.sort((a, b) => a.value - b.value || a.id - b.id);
console.log('sorted', rows[0].id, rows[count >> 1].id, rows[count - 1].id);
for (const block of typed) block.sort();
console.log('blocks', typed.map((block) => block[words >> 1]).reduce((a, b) => a + b, 0));
