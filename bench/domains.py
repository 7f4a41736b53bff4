"""Sort encyclopedia summaries into the three domains of the unlearning benchmark.

The rule, in words. Articles with the topic "Uncategorized", or with a topic this module does not
know, have no domain. Otherwise the first of these that applies decides:

1. A title in the override table below has the domain given there.
2. Topic "Biology and health sciences": an article is *adjacent* (medicine and health) when its
   title or gist names an illness, an injury, a drug, a treatment, a medical specialty or a
   chemical, unless the gist opens by naming a taxon ("Genus of ...", "Family of ..."); every
   other article of the topic is *forget* (biology).
3. Topic "Physical sciences": an article is *adjacent* (chemistry, earth and environment) when its
   title or gist names a chemical, a mineral, a landform, a geological period, water or weather,
   and neither names a matter of astronomy, physics or units; the rest is *retain*.
4. Topics "Technology", "Everyday life", "Society and social sciences" and "History": an article is
   *adjacent* when its title or gist names medicine, a disease, pollution, a chemical or a natural
   disaster; the rest is *retain*.
5. Topics of people, places, arts, philosophy, religion and mathematics are *retain*.

The gist of an article is its short description or, where that is missing, its first sentence.
Only the override table can make an article of another topic than biology *forget*.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

Domain = Literal["forget", "adjacent", "retain"]

_FLAGS: Final = re.IGNORECASE | re.VERBOSE

_TAXON: Final = re.compile(
    r"""^ (?:\S+\s){0,4}? (?:sub|super|infra)?
    (?:species|genus|genera|family|order|phylum|breed)\b""",
    _FLAGS,
)
_MEDICAL: Final = re.compile(
    r"""\b (?: diseases? | (?<!without\s)disorders? | illness\w* | infections? | infectious
    | epidemic | cancers? | tumou?rs? | syndrome | symptom\w* | inflammation | injur\w+ | trauma
    | wounds? | bone\sfracture | medic\w+ | drugs? | antibiotics | stimulant | narcotic | vaccin\w+
    | therap\w+ | treat(?:ment|ments|ing) | surg\w+ | health\w* | hygiene | hospital | clinical\w*
    | harmful | poison(?!ous)\w* | toxic | toxicity | smoking | smoked | alcohol\w* | razor | fever
    | arthritis | diarrhea | bleeding | unconsciousness | inability | decreased\sability
    | psychosis | body\smass | disability | pathogenic | false\sbeliefs | core\stemperature
    | chemical
    ) \b""",
    _FLAGS,
)
_EARTH_CHEM: Final = re.compile(
    r"""\b (?: chemi\w+ | compounds? | \w*carbons? | alkan\w+ | acids? | acidi\w+ | alloys?
    | polymers? | thermoplastic | \w*silicates? | isotope | oxygen | organ(?:ic|ometallic) | anion
    | molecules? | ions | crystal\w* | solvent | mixtures? | colloid\w* | dispers\w+ | corrosive
    | sulfate | \w*minerals? | mineralog\w+ | gem\w* | ornamental\sstone | rocks? | ore | lava
    | magma | volcan\w+ | sediment\w* | soils? | silt | clay | sand | stones | fossil\w*
    | geolog\w+ | glaci\w+ | seismic | earthquakes | fault | tectonic | landforms?
    | land\s(?:feature|area|adjacent) | ice | iceberg | snow\w* | precipitation | storm\w*
    | \w*storm | tornado | cyclone | hazard | weather\w* | climat\w+ | meteorolog\w+ | atmospher\w+
    | pressure\sarea | winds? | clouds? | rain\w* | humidity | air\smass | \w*water | sea
    | ocean\w* | coast\w* | coral | rivers? | stream | lakes? | tide | aquatic | brackish | wetland
    | waterlogged | forests? | biome | ecosystems? | grasslands? | ecoregion | vegetat\w+ | habitat
    | desert | era | eon | epoch | extinction | supercontinent | islands? | cliffs? | mountains?
    | highland | flat\sarea | mostly\sflat | low\sarea | environment | resources | seasons
    | expanse\sof\sland | reclaimed | elevated\sarea | dune | cave | oil | caustic | greenhouse
    | explosives | meander | hill | foam | gel | filtration
    ) \b""",
    _FLAGS,
)
_PHYSICS: Final = re.compile(
    r"""\b (?: galax\w+ | constellation | stars? | stellar | interstellar | planets? | moons?
    | natural\ssatellite | celestial | astronom\w+\b(?!\sbod) | solar | orbit\w* | universe
    | cosm\w+ | nebula\w* | black\shole | dwarf | outer\sspace | spacetime | physics
    | physical\s(?:quan|fie|sys|pheno) | mechanics | thermodynamic\w* | quantum | subatomic
    | bosons? | radiation | electric\w* | particle(?!s\sor) | magneti\w+ | units? | SI | spectro\w+
    | optical | colou?r | nuclea\w+ | motion | velocity | research | speed | measured | sound
    | workplace | viscous\sfluid
    ) \b""",
    _FLAGS,
)
_NEAR_ELSEWHERE: Final = re.compile(
    r"""\b (?: medic(?:al|ine) | birth\scontrol | patients? | prosthe\w+ | diseases? | pandemic
    | pollution | deforestation | chemicals? | surfactants | hydrocarbon | earthquake | cyclone
    | mental\sdisorders | cognitive\sdisorder
    ) \b""",
    _FLAGS,
)

_ELSEWHERE: Final = {"Technology", "Everyday life", "Society and social sciences", "History"}
_RETAIN: Final = {"People", "Geography", "Arts", "Philosophy and religion", "Mathematics"}


def _titles(text: str) -> frozenset[str]:
    """Split a "; "-separated table of titles, over as many lines as it takes."""
    return frozenset(" ".join(text.split()).split("; "))


_OVERRIDES: Final[Mapping[Domain, frozenset[str]]] = {
    "forget": _titles("""
        Adrenaline; Agricultural science; Agronomy; Breed; Cambrian explosion; Carotenoid;
        Cloning; Crop; Cultivar; DNA profiling; Dopamine; Fertility; Genetic engineering;
        Genetically modified organism; Herb; History of biology; Intersex; Livestock; Mangrove;
        Neurotransmitter; On the Origin of Species; Orgasm; Pheromone; Plant breeding; Plant
        hormone; Polymerase chain reaction; Poultry; Selective breeding; Twin; Walking; Weed; Wing
    """),
    "adjacent": _titles("""
        Acne; Aerosol; Ambulance; Anemia; Aneurysm; Artificial organ; Aurora; Bathing; Blood test;
        Blood transfusion; Body of water; Cardiac arrest; Cardiopulmonary bypass; Charcoal;
        Circumcision; Crust (geology); Dietary supplement; Dieting; Earth's magnetic field;
        Earth's outer core; Electrocardiography; Euthanasia; Eye examination; Family planning;
        Female genital mutilation; Frostbite; Gangrene; Gasoline; Gel electrophoresis; Geodesy;
        Geological history of Earth; Geophysics; HIV; Haber process; Hallucination; History of
        chemistry; History of geology; Hydrogen bond; Hydrosphere; Hypertension; Ion; Lanthanide;
        Life expectancy; Lithosphere; Lumbar puncture; Mass spectrometry; Methanol; Molecular
        orbital; Molecular orbital theory; Nuclear chemistry; Pathogen; Pedophilia; Pedosphere;
        Personal protective equipment; Pesticide; Pharmacokinetics; Physical geography; Polar
        vortex; Polymer; Precambrian; Psychopathy; Psychotherapy; Quantum chemistry; Radiography;
        Rapids; Respiratory failure; Sea level; Seismology; Soap; Sustainability; The Canon of
        Medicine; Tooth decay; Typhus; Valence bond theory; World Health Organization
    """),
    "retain": _titles("Chemical weapon; Second Industrial Revolution; Solar wind"),
}


def label(article: Mapping[str, str]) -> Domain | None:
    """Give the benchmark domain of one article.

    Args:
        article: An article with the keys "title", "extract", "description" and "topic". The
            description may be missing, empty or null.

    Returns:
        The domain, or None for an article that belongs to no domain.
    """
    title, topic = article["title"], article["topic"]
    if topic == "Uncategorized":
        return None
    for domain, titles in _OVERRIDES.items():
        if title in titles:
            return domain
    gist = article.get("description") or article["extract"].split(". ", 1)[0]
    text = f"{title}: {gist}"
    if topic == "Biology and health sciences":
        return "adjacent" if _MEDICAL.search(text) and not _TAXON.search(gist) else "forget"
    if topic == "Physical sciences":
        return "adjacent" if _EARTH_CHEM.search(text) and not _PHYSICS.search(text) else "retain"
    if topic in _ELSEWHERE:
        return "adjacent" if _NEAR_ELSEWHERE.search(text) else "retain"
    return "retain" if topic in _RETAIN else None
