// The unmodified `openai` SDK for Node, for many requests in one process: one JSON job a line on standard input, one JSON answer
// a line on standard output, in the same order. It ends with its input.
// Environment: SDK_FOLDER (where `openai` is installed), BASE_URL.
// Job: {api_key, route, body, max_retries, headers, way: "create" | "helper" | "leave"}; null is the SDK's own.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.env.SDK_FOLDER + "/");
const { default: OpenAI, APIError } = require("openai");

const TIMEOUT_MS = 15_000;

// A whole answer, or a chunk: what the first choice says, as programs read it.
function add(seen, part) {
  if (part.usage) seen.usages.push(part.usage);
  if (part.object === "list") return;
  for (const choice of part.choices) {
    seen.finish_reason = choice.finish_reason || seen.finish_reason;
    if (choice.index !== 0) continue;
    seen.text += (choice.delta ?? choice.message)?.content ?? choice.text ?? "";
  }
}

function refusal(error) {
  const status = error.status ?? null;
  const name = error.constructor.name;
  return {
    kind: name === "APIError" && status !== null ? "APIStatusError" : name,
    status,
    code: error.code ?? null,
    type: error.type ?? null,
    message: error.message,
    shown: `${error} ${JSON.stringify(error.error)}`,
    no_retry: status !== null && error.headers.get("x-should-retry") === "false",
  };
}

const ways = {
  async create(resource, body, seen) {
    const answer = await resource.create(body);
    if (!body.stream) return add(seen, answer);
    for await (const chunk of answer) add(seen, chunk);
  },
  // The helper that puts a stream together: for tool calls.
  async helper(resource, body, seen) {
    const { stream: _, ...request } = body;
    const whole = body.stream ? await resource.stream(request).finalChatCompletion() : await resource.create(body);
    add(seen, whole);
    const calls = whole.choices[0].message.tool_calls ?? [];
    seen.calls = calls.map((call) => [call.function.name, call.function.arguments]);
  },
  // Goes away after the first content.
  async leave(resource, body, seen) {
    for await (const chunk of await resource.create(body)) {
      add(seen, chunk);
      if (seen.text) break;
    }
  },
};

async function play({ api_key, route, body, max_retries, headers, way }) {
  const seen = { text: "", finish_reason: null, usages: [], calls: [], refusal: null, attempts: 0 };
  const client = new OpenAI({
    baseURL: process.env.BASE_URL,
    apiKey: api_key,
    maxRetries: max_retries ?? undefined,
    defaultHeaders: headers ?? undefined,
    timeout: TIMEOUT_MS,
    fetch: (...request) => {
      seen.attempts += 1;
      return fetch(...request);
    },
  });
  const resources = {
    "chat/completions": client.chat.completions,
    completions: client.completions,
    embeddings: client.embeddings,
  };
  try {
    await ways[way](resources[route], body, seen);
  } catch (error) {
    if (!(error instanceof APIError)) return { broken: `${error.stack}` };
    seen.refusal = refusal(error);
  }
  return seen;
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await play(JSON.parse(line))) + "\n");
}
