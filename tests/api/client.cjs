// Asks the API with OpenAI's own client for JavaScript, and prints what that made of the answers as one JSON object.
const OpenAI = require("openai");

const client = new OpenAI({ baseURL: process.argv[2], apiKey: process.argv[3], maxRetries: 0 });
const model = "talaria";

async function pieces(stream) {
  const names = [];
  let text = "";
  for await (const event of stream) {
    names.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  return { names, text };
}

async function main() {
  const told = {};
  const messages = [{ role: "user", content: "Say one." }];
  told.completion = (await client.chat.completions.create({ model, messages })).choices[0].message.content;

  told.chunks = "";
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    told.chunks += chunk.choices[0]?.delta?.content ?? "";
  }

  const first = await client.responses.create({ model, input: "Say one." });
  told.response = first.output_text;
  const on = await client.responses.create({ model, input: "Go on.", previous_response_id: first.id });
  told.previous = on.previous_response_id === first.id;

  told.streamed = await pieces(await client.responses.create({ model, input: "Use a tool.", stream: true }));
  const helped = client.responses.stream({ model, input: "Use a tool." });
  const final = await helped.finalResponse();
  told.items = final.output.map((item) => item.type);
  told.final = final.output_text;

  const queued = await client.responses.create({ model, input: "Say one.", background: true });
  told.queued = queued.status;
  told.followed = await pieces(await client.responses.retrieve(queued.id, { stream: true }));
  told.kept = (await client.responses.retrieve(queued.id)).output_text;

  try {
    await client.responses.retrieve("resp_nothing");
  } catch (error) {
    told.error = { status: error.status, code: error.code, kind: error.constructor.name };
  }
  console.log(JSON.stringify(told));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
