// The unmodified `openai` SDK for Node: one whole answer and one stream. Prints one JSON value.
// Environment: SDK_FOLDER (where `openai` is installed), BASE_URL, API_KEY, MODEL.
import { createRequire } from "node:module";

const require = createRequire(process.env.SDK_FOLDER + "/");
const { default: OpenAI } = require("openai");

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const request = {
  model: process.env.MODEL,
  messages: [{ role: "user", content: "Name the capital of France." }],
  max_tokens: 16,
  temperature: 0,
};

const whole = await client.chat.completions.create(request);

const chunks = [];
const stream = await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) chunks.push(chunk);

let refused = null;
try {
  await client.chat.completions.create({ ...request, model: "acme/none" });
} catch (error) {
  refused = { status: error.status, code: error.code };
}

console.log(
  JSON.stringify({
    whole: { text: whole.choices[0].message.content, model: whole.model, usage: whole.usage },
    stream: {
      text: chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join(""),
      last_choices: chunks.at(-1).choices.length,
      usages: chunks.filter((chunk) => chunk.usage).length,
      usage: chunks.at(-1).usage,
    },
    refused,
  }),
);
