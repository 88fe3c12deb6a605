// What speculate.mjs asks: twenty of each kind, of up to two hundred words.
const code = [
	["Rename the variable `n` to `count` in this function. Answer with the whole function.", `def mean(values):
    total = 0.0
    n = 0
    for value in values:
        if value is None:
            continue
        total += value
        n += 1
    if n == 0:
        return None
    return total / n`],
	["Add a line to this JavaScript that logs the name before it returns. Answer with the whole function.", `function describe(person) {
  const name = person.first + " " + person.last;
  const age = new Date().getFullYear() - person.born;
  const city = person.address ? person.address.city : "unknown";
  return { name: name, age: age, city: city };
}`],
	["Change the port from 8080 to 9090 in this configuration. Answer with the whole file.", `[server]
address = "127.0.0.1"
port = 8080
workers = 4
log_level = "info"

[database]
path = "/var/lib/app/data.db"
timeout_s = 30
pool = 8

[cache]
enabled = true
entries = 10000`],
	["Give this C function a check that `list` is not NULL. Answer with the whole function.", `int find(const struct list *list, const char *name)
{
	for (int i = 0; i < list->count; i++) {
		const struct item *item = &list->items[i];
		if (item->deleted)
			continue;
		if (strcmp(item->name, name) == 0)
			return i;
	}
	return -1;
}`],
	["Add a comment above each function of this Python. Answer with the whole file.", `def read_lines(path):
    with open(path) as file:
        return [line.strip() for line in file]


def count_words(lines):
    counts = {}
    for line in lines:
        for word in line.split():
            counts[word] = counts.get(word, 0) + 1
    return counts


def print_counts(counts):
    for word, count in sorted(counts.items()):
        print(word, count)`],
	["Make the class of this HTML list \"menu\" instead of \"nav\". Answer with the whole HTML.", `<ul class="nav">
  <li><a href="/index.html">Home</a></li>
  <li><a href="/products.html">Products</a></li>
  <li><a href="/prices.html">Prices</a></li>
  <li><a href="/about.html">About us</a></li>
  <li><a href="/contact.html">Contact</a></li>
</ul>`],
	["Sort the result of this SQL by total, largest first. Answer with the whole query.", `SELECT customers.name, customers.city, SUM(orders.amount) AS total
FROM customers
JOIN orders ON orders.customer_id = customers.id
WHERE orders.created_at >= '2024-01-01'
  AND orders.state = 'paid'
GROUP BY customers.name, customers.city
HAVING SUM(orders.amount) > 100;`],
	["Rename `total` to `sum`. Answer with the whole function.", `function add(list) {
  let total = 0;
  for (const item of list) total += item.price;
  return total;
}`],
	["Change the timeout to 30. Answer with the whole file.", `{
  "host": "localhost",
  "port": 5432,
  "timeout": 10,
  "retries": 3
}`],
	["Add the flag `--verbose` to the last command. Answer with the whole script.", `#!/bin/sh
set -e
mkdir -p build
cd build
cmake ..
make`],
	["Make this loop count down. Answer with the whole program.", `for i in range(1, 11):
    print("line", i)
print("end")`],
	["Add a field `email` of type string. Answer with the whole struct.", `type Person struct {
	Name string
	City string
	Age  int
}`],
	["Turn `var` into `let`. Answer with the whole code.", `var first = 1;
var second = 2;
var third = first + second;
console.log(first, second, third);`],
	["Use `<=` instead of `<`. Answer with the whole function.", `int count(const int *values, int length, int limit) {
  int found = 0;
  for (int i = 0; i < length; i++)
    if (values[i] < limit)
      found++;
  return found;
}`],
	["Change the image to `node:20`. Answer with the whole file.", `FROM node:18
WORKDIR /app
COPY package.json .
RUN npm install
COPY . .
CMD ["npm", "start"]`],
	["Return an empty list instead of None. Answer with the whole function.", `def find(items, name):
    for item in items:
        if item.name == name:
            return item.values
    return None`],
	["Add a heading \"Results\" above the table. Answer with the whole text.", `# Report

The table shows what was measured.

| day | value |
| --- | --- |
| Monday | 12 |
| Tuesday | 15 |`],
	["Order by name. Answer with the whole query.", `SELECT name, city, age
FROM people
WHERE age > 30
ORDER BY age;`],
	["Make the colour blue. Answer with the whole style sheet.", `.button {
  color: red;
  border: 1px solid red;
  padding: 4px 8px;
}
.button:hover {
  color: white;
  background: red;
}`],
	["Rename the method `run` to `start`. Answer with the whole class.", `class Motor:
    def __init__(self, speed):
        self.speed = speed

    def run(self):
        print("running at", self.speed)

    def stop(self):
        self.speed = 0`],
];
const texts = [
	`The lighthouse on the northern cape was built in 1871 after three ships were lost in one winter. Its lamp burned colza oil until 1904, when it was changed to paraffin, and electricity came in 1938. The keeper and his family lived in two rooms below the lamp and grew potatoes behind the wall. In 1979 the light was made automatic, and the last keeper moved to the village. Today the tower is a small museum, open from May to September, and the lamp can still be seen from thirty kilometres away.`,
	`Bees find flowers by colour, by scent and by what other bees tell them. A bee that has found a good meadow returns to the hive and dances: the direction of the dance shows the direction of the meadow from the sun, and its length shows the distance. Other bees follow the dancer, learn the way, and fly out. If the meadow is poor they do not dance when they return, and so the hive soon forgets it. In this way thousands of bees decide together where to gather nectar without any of them knowing all the places.`,
	`The meeting of the garden club began at seven. Mrs. Hall reported that the water bill had risen by a fifth and proposed two barrels for rain water at the tool shed. Mr. Okafor offered to build the stands if the club paid for the wood. The members agreed to spend eighty pounds. The path to the compost is to be laid with gravel in April; eleven members will help on the first Saturday. The plant sale brought two hundred and forty pounds, forty more than last year. The next meeting is on the third of March.`,
	`A heat pump moves heat from outside into a house, as a refrigerator moves heat out of its box. A liquid that boils at a low temperature evaporates in the outdoor unit and takes up heat from the air. A compressor presses the vapour together, which makes it hot, and in the house it gives its heat to the water of the radiators and becomes liquid again. For each unit of electricity a good heat pump delivers three to four units of heat. It works best in a well insulated house with large radiators, because the water need not be so hot.`,
	`In the spring of 1848 the river rose by four metres in two days. The lower town was flooded up to the first floors, and the wooden bridge was carried away. Boats brought people to the church on the hill, where they stayed for nine days. When the water went down the council decided to move the market to the upper town and to build a stone bridge with five arches. The bridge was finished in 1856 and is still in use. A mark on the corner of the old mill shows how high the water stood.`,
	`The recipe makes four loaves. Mix one kilogram of wheat flour with six hundred and fifty grams of water, twenty grams of salt and a spoon of yeast. Leave the dough for an hour, fold it, and leave it for another hour. Divide it into four parts, shape them, and put them in the refrigerator overnight. In the morning heat the oven to two hundred and forty degrees with a tray of water on its floor. Bake the loaves for twenty five minutes, take out the water, and bake them for ten minutes more. Let them cool for an hour before you cut them.`,
	`The library will close for repairs from the tenth of June to the end of August. Books that are due in this time may be returned at the town hall, where a box stands beside the entrance. Readers may borrow up to twenty books instead of ten before the tenth of June. The reading room for children moves to the school in Mill Lane and is open on Tuesdays and Thursdays from two to five. New shelves, a lift and a quiet room with twelve desks will be ready when the library opens again on the first of September.`,
	`The ferry leaves at eight, at noon and at six. It takes forty minutes and carries thirty cars. In winter the boat at six does not run, and in storms there is none at all. Tickets are sold on board.`,
	`The old oak in the park was felled on Monday because its trunk was hollow. Children counted two hundred and twelve rings. The wood will become benches, and a young oak will be planted in the same place in autumn.`,
	`A glacier is made of snow that does not melt in summer. Layer upon layer presses the snow below into ice. When the ice is thick enough it flows downhill, a few centimetres or metres a day, and carries stones with it.`,
	`The bakery in Station Road has changed its owner. Mr. Brandt, who baked there for thirty years, has retired. His daughter keeps the bread as it was, adds cakes at the weekend, and opens half an hour earlier.`,
	`Salt keeps food from going bad because it takes water from it. Bacteria need water to grow. Fish was salted in barrels, meat was rubbed with salt and hung up, and cabbage was pressed with salt until it turned sour.`,
	`The tram line to the university will be built in two stages. The first, to the hospital, is to open in three years. The second waits for money from the state. Until then buses run every six minutes.`,
	`Owls hear better than they see. Their ears stand at different heights, so a sound reaches one before the other. From this an owl knows where a mouse runs, even under snow, and flies there without a sound.`,
	`The choir sang in the full church on Sunday. The programme had songs from four centuries. The soloist had a cold, and a singer from the second row took her place and was applauded for a long time.`,
	`Rust forms when iron meets water and air. Paint keeps both away, and zinc is eaten in the place of the iron. A car in a dry country lasts longer than one by the sea, where there is salt in the air.`,
	`The council has decided to turn off every second street lamp after midnight. That saves nine thousand pounds a year. Lamps at crossings and at the station stay on. People may write to the council until May.`,
	`Tea came to Europe by ship in the seventeenth century and was as dear as silver. Smugglers brought more of it than merchants. When the tax was lowered, smuggling ended and everybody drank tea.`,
	`The swimming lake was tested in June, July and August. The water was good each time. In September algae were found at the northern shore, and bathing was forbidden there for two weeks.`,
	`The museum shows two hundred clocks. The oldest has one hand and goes wrong by half an hour a day. The newest is as large as a cupboard and would lose a second in a million years.`,
];
const chats = [
	"Tell me a short story about a fox who wants to learn to swim.",
	"What should I consider before I adopt a dog?",
	"Explain to a child why the moon changes its shape.",
	"I feel nervous before an exam. What can I do in the evening before it?",
	"Give me some ideas for a weekend without a car.",
	"How does a bicycle stay upright when it rolls?",
	"Describe an old harbour town in the early morning.",
	"Why do cats purr?",
	"Write a short poem about rain on a tin roof.",
	"What is a good way to learn the names of new colleagues?",
	"How do I keep basil alive in a kitchen?",
	"Tell me about a day in the life of a postman on an island.",
	"Why is the sea salty?",
	"What can I cook with potatoes, eggs and an onion?",
	"How would you spend a rainy day with two children?",
	"What makes a good neighbour?",
	"Explain what a bank does with the money of its customers.",
	"Why do leaves turn red in autumn?",
	"Give me three rules for writing a clear letter.",
	"What should I see in a city if I have only three hours?",
];

export const kinds = [
	{ name: "editing code", prompts: code.map(([task, text]) => `${task}\n\n\`\`\`\n${text}\n\`\`\``) },
	{ name: "summarising", prompts: texts.map((text) => `Summarise this text in three sentences.\n\n${text}`) },
	{ name: "free chat", prompts: chats },
];
