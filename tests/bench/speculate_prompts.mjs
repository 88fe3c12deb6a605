// What speculate.mjs asks: of each kind seven, of about a hundred to two hundred words.
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
];
const texts = [
	`The lighthouse on the northern cape was built in 1871 after three ships were lost in one winter. Its lamp burned colza oil until 1904, when it was changed to paraffin, and electricity came in 1938. The keeper and his family lived in two rooms below the lamp and grew potatoes behind the wall. In 1979 the light was made automatic, and the last keeper moved to the village. Today the tower is a small museum, open from May to September, and the lamp can still be seen from thirty kilometres away.`,
	`Bees find flowers by colour, by scent and by what other bees tell them. A bee that has found a good meadow returns to the hive and dances: the direction of the dance shows the direction of the meadow from the sun, and its length shows the distance. Other bees follow the dancer, learn the way, and fly out. If the meadow is poor they do not dance when they return, and so the hive soon forgets it. In this way thousands of bees decide together where to gather nectar without any of them knowing all the places.`,
	`The meeting of the garden club began at seven. Mrs. Hall reported that the water bill had risen by a fifth and proposed two barrels for rain water at the tool shed. Mr. Okafor offered to build the stands if the club paid for the wood. The members agreed to spend eighty pounds. The path to the compost is to be laid with gravel in April; eleven members will help on the first Saturday. The plant sale brought two hundred and forty pounds, forty more than last year. The next meeting is on the third of March.`,
	`A heat pump moves heat from outside into a house, as a refrigerator moves heat out of its box. A liquid that boils at a low temperature evaporates in the outdoor unit and takes up heat from the air. A compressor presses the vapour together, which makes it hot, and in the house it gives its heat to the water of the radiators and becomes liquid again. For each unit of electricity a good heat pump delivers three to four units of heat. It works best in a well insulated house with large radiators, because the water need not be so hot.`,
	`In the spring of 1848 the river rose by four metres in two days. The lower town was flooded up to the first floors, and the wooden bridge was carried away. Boats brought people to the church on the hill, where they stayed for nine days. When the water went down the council decided to move the market to the upper town and to build a stone bridge with five arches. The bridge was finished in 1856 and is still in use. A mark on the corner of the old mill shows how high the water stood.`,
	`The recipe makes four loaves. Mix one kilogram of wheat flour with six hundred and fifty grams of water, twenty grams of salt and a spoon of yeast. Leave the dough for an hour, fold it, and leave it for another hour. Divide it into four parts, shape them, and put them in the refrigerator overnight. In the morning heat the oven to two hundred and forty degrees with a tray of water on its floor. Bake the loaves for twenty five minutes, take out the water, and bake them for ten minutes more. Let them cool for an hour before you cut them.`,
	`The library will close for repairs from the tenth of June to the end of August. Books that are due in this time may be returned at the town hall, where a box stands beside the entrance. Readers may borrow up to twenty books instead of ten before the tenth of June. The reading room for children moves to the school in Mill Lane and is open on Tuesdays and Thursdays from two to five. New shelves, a lift and a quiet room with twelve desks will be ready when the library opens again on the first of September.`,
];
const chats = [
	"Tell me a short story about a fox who wants to learn to swim.",
	"What should I consider before I adopt a dog?",
	"Explain to a child why the moon changes its shape.",
	"I feel nervous before an exam. What can I do in the evening before it?",
	"Give me some ideas for a weekend without a car.",
	"How does a bicycle stay upright when it rolls?",
	"Describe an old harbour town in the early morning.",
];

export const kinds = [
	{ name: "editing code", prompts: code.map(([task, text]) => `${task}\n\n\`\`\`\n${text}\n\`\`\``) },
	{ name: "summarising", prompts: texts.map((text) => `Summarise this text in three sentences.\n\n${text}`) },
	{ name: "free chat", prompts: chats },
];
