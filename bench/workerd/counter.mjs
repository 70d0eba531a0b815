// Counters as durable objects on SQLite, at the paths of dwk's lab: the same
// load is put on both.
import { DurableObject } from "cloudflare:workers";

export class Counter extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS lab_counter (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER NOT NULL)");
    this.ctx.storage.sql.exec("INSERT OR IGNORE INTO lab_counter VALUES (0, 0)");
  }

  async fetch(request) {
    const url = new URL(request.url);
    if (request.method === "GET") {
      return Response.json({ value: this.ctx.storage.sql.exec("SELECT value FROM lab_counter").one().value });
    }
    const n = Number(url.searchParams.get("n") ?? 1);
    const row = this.ctx.storage.sql.exec("UPDATE lab_counter SET value = value + ? WHERE id = 0 RETURNING value", n).one();
    return Response.json({ value: row.value });
  }
}

export default {
  async fetch(request, env) {
    const [, , , name] = new URL(request.url).pathname.split("/"); // /lab/counter/NAME/add
    return env.COUNTERS.get(env.COUNTERS.idFromName(name)).fetch(request);
  },
};
