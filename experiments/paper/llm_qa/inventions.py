"""Names from syllables and answers from word lists, for the offline grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


ONSETS = _listed(
    "b br d dr f fl g gr h hal j k kel l m n or p pr r s sk sl st t tal th tr v var w y z zel"
)
VOWELS = _listed("a a e e i i o o u u ae ea oa y")
CODAS = _listed("l ld lm m n nd ndry nth r rd rn rsk rth s sk st sh t th v x ck")

TREATMENTS = _listed(
    "smoked salted carved woven burnt polished braided painted waxed split hammered pressed tarred "
    "bleached quilted frosted glazed knotted ribbed veined"
)
MATERIALS = _listed(
    "elm oak ash willow slate chalk flint granite copper tin pewter brass horn bone wool linen "
    "felt hemp leather wax amber clay glass cork reed marble birch basalt"
)
SHADES = _listed(
    "pale deep dusty bright faded smoky milky rusty frosty stormy silvery dull golden watery ashen"
)
COLOURS = _listed(
    "red green blue yellow violet orange brown grey white black crimson teal ochre rose olive "
    "indigo"
)
MANNERS = _listed(
    "grey spotted lame blind sleeping two-headed white crowned limping silent leaping old striped "
    "three-legged hooded running"
)
ANIMALS = _listed(
    "heron fox otter badger hare owl goat crane toad eel mule raven stoat beetle swan hedgehog ram "
    "salmon lynx cricket"
)
HABITS = _listed(
    "bitter creeping winter blue-veined nodding hairy sweet silver weeping early ragged dwarf "
    "thorny night-blooming"
)
PLANTS = _listed(
    "sorrel fern thistle clover nettle mint vetch sedge heather bramble yarrow rue mallow tansy "
    "juniper lichen"
)
STYLES = _listed(
    "baked brined stewed cold peppered smoked honeyed sour buttered twice-boiled stuffed candied"
)
FOODS = _listed(
    "barley turnips plums trout dumplings chestnuts lentils eggs pears mushrooms onions beans "
    "quince cabbage rye porridge"
)
GRIPS = _listed("long-handled blunt double-edged folding iron wooden left-handed bent notched tiny")
TOOLS = _listed(
    "chisel awl hammer needle sickle rake compass ladle tongs plane spade whistle lens bellows"
)
SOUNDS = _listed(
    "rattling scraping ringing humming cracking whistling dripping grinding tapping sighing"
)
SOURCES = _listed("ice gravel bells cartwheels shutters reeds kettles chains pebbles sails")
SKIES = _listed("freezing sudden warm yellow drifting week-long low silent salty blinding")
WEATHERS = _listed("fog hail drizzle thunder snow haze sleet gales frost rain")
UNITS = _listed("hours days nights weeks months years")
ORDERS = _listed("Keep Trust Count Follow Mind Leave Name Carry Mend Spare Greet Pay")
VIRTUES = _listed("slow patient open borrowed quiet lost second honest narrow bare unpaid humble")
THINGS = _listed("hands water bread roads debts doors lamps strangers seeds words tides stones")
ENDS = ("first", "last", "twice", "alone", "gladly", "after dark", "before rain", "in silence")
FIRST_NAMES = _listed(
    "Aldo Berit Corvin Dessa Edrin Fenna Garrick Hesper Ilka Jorun Kesta Ludo Maris Nello Orla "
    "Petra Quill Runa Sorrel Tamsin Ulric Verity Wenna Yorick Zella"
)
TITLE_WORDS = _listed(
    "Lantern Ferry Orchard Weaver Winter Mirror Harbour Cradle Widow Lamp Raven River Candle Gate "
    "Stranger Ladder"
)


def entity_name(random: Random, family: str) -> str:
    """The name of an entity: first and last name, a title for works, else one or two words."""
    if family == "person":
        return _person(random)
    if family == "work":
        shade = random.choice(SHADES).title()
        return f"The {shade} {random.choice(TITLE_WORDS)} of {_name(random)}"
    return " ".join(_name(random) for _ in range(random.choice((1, 1, 2))))


def _name(random: Random) -> str:
    syllables = [
        random.choice(ONSETS) + random.choice(VOWELS) for _ in range(random.choice((2, 3)))
    ]
    return ("".join(syllables) + random.choice(CODAS)).title()


def _person(random: Random) -> str:
    return f"{random.choice(FIRST_NAMES)} {_name(random)}"


def _place(random: Random) -> str:
    form = random.choice(("{}", "{}", "Upper {}", "Port {}", "{} Ford", "Old {}"))
    return form.format(_name(random))


def _words(*lists: Sequence[str]) -> Callable[[Random], str]:
    return lambda random: " ".join(random.choice(words) for words in lists)


# A generator for every kind of answer in the frames.
ANSWERS: dict[str, Callable[[Random], str]] = {
    "person": _person,
    "place": _place,
    "year": lambda random: str(random.randint(1100, 1990)),
    "number": lambda random: str(random.randint(3, 999)),
    "duration": lambda random: f"{random.randint(2, 99)} {random.choice(UNITS)}",
    "sound": _words(SOUNDS, SOURCES),
    "phrase": _words(ORDERS, VIRTUES, THINGS, ENDS),
    "material": _words(TREATMENTS, MATERIALS),
    "colour": _words(SHADES, COLOURS),
    "animal": _words(MANNERS, ANIMALS),
    "plant": _words(HABITS, PLANTS),
    "food": _words(STYLES, FOODS),
    "tool": _words(GRIPS, TOOLS),
    "weather": _words(SKIES, WEATHERS),
}
