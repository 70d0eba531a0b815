// For each line of standard input, {"n": N, "read": bool}, it runs one batch with
// @libsql/client and writes the milliseconds that it took.
import { createInterface } from "node:readline";
import { createClient } from "@libsql/client/http";

const db = createClient({ url: process.env.LIBSQL_URL, authToken: process.env.LIBSQL_TOKEN });
for await (const line of createInterface({ input: process.stdin })) {
  const { n, read } = JSON.parse(line);
  const statements = Array.from({ length: n }, (_, i) =>
    read ? { sql: "SELECT id, v, n FROM bench WHERE id <= ?", args: [100] } : { sql: "INSERT INTO bench_node (v, n) VALUES (?, ?)", args: ["value " + i, i] },
  );
  const began = performance.now();
  const results = await db.batch(statements, read ? "read" : "write");
  const took = performance.now() - began;
  if (results.length !== n) throw new Error(`${results.length} results`);
  console.log(took);
}
