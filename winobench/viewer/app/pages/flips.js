// Questions that exactly one of two runs has right.

import { count, html, link, Loaded, number, useData, useMemo, useQuery, useTitle, words } from '../base.js'
import { signed } from '../answers.js'
import { Search, Select, pageOf } from '../parts.js'
import * as search from '../search.js'
import * as source from '../source.js'
import { Pages, SaveTable, Table } from '../tables.js'

const SIZE = 25
const FILTERS = ['task', 'way', 'text', 'group']

export default function Flips({ baseline, other, parameters }) {
  const runs = useData(async () => {
    const both = await Promise.all([baseline, other].map(source.run))
    const tasks = Object.keys(both[0].tasks).filter(task => both.every(run => isAnswered(run.tasks[task])))
    if (!tasks.length) throw new Error(`${both[0].label} and ${both[1].label} have no task with right and wrong answers in common.`)
    return { both, tasks }
  }, [baseline, other])
  const title = runs.value ? `Flips between ${runs.value.both.map(({ label }) => label).join(' and ')}` : 'Flips'
  useTitle(title)
  return html`<h1>${title}</h1><${Loaded} state=${runs} what="the runs">${found => html`<${Compared} ...${found} slugs=${[baseline, other]} parameters=${parameters} />`}<//>`
}

const isAnswered = about => about && about.rows !== null && !['bias', 'rated'].includes(about.kind)

function Compared({ both, tasks, slugs, parameters }) {
  const state = useData(() => search.flips({ first: slugs[0], second: slugs[1], tasks: tasks.map(task => ({ task, metric: both[0].tasks[task].metric })) }), slugs)
  return html`<${Loaded} state=${state} what="the answers of both runs">${found => html`<${Found} found=${found} both=${both} slugs=${slugs} tasks=${tasks} parameters=${parameters} />`}<//>`
}

function Found({ found: { rows, counts }, both, slugs, tasks, parameters }) {
  const [values, write] = useQuery(['flips', ...slugs], parameters)
  const filters = Object.fromEntries(FILTERS.map(name => [name, values[name] ?? '']))
  const page = pageOf(values)
  const change = some => write({ page: '', ...some })
  const ways = { first: `only ${both[0].label}`, second: `only ${both[1].label}` }
  const labels = Object.fromEntries(tasks.map(task => [task, both[0].tasks[task].label]))
  const table = useMemo(() => byGroup(rows), [rows])
  const shown = useMemo(() => {
    const asked = filters.text.toLowerCase().split(/\s+/).filter(Boolean)
    return rows.filter(row => (!filters.task || row.task === filters.task) && (!filters.way || row.way === filters.way)
      && (!filters.group || row.groups?.includes(filters.group)) && asked.every(word => `${row.id} ${row.text}`.toLowerCase().includes(word)))
  }, [rows, ...Object.values(filters)])
  const groups = [...new Set(table.filter(({ task, group }) => group && (!filters.task || task === filters.task)).map(({ group }) => group))]
  const total = way => count(shown.filter(row => row.way === way).length)
  const problems = counts.flatMap(({ task, other, missing }) => [
    ...(other ? [`Left out of ${labels[task]}: questions with the same id in both runs, but other texts, images or targets (${count(other)}).`] : []),
    ...(missing ? [`Left out of ${labels[task]}: questions that one run only has (${count(missing)}).`] : []),
  ])
  return html`
    <p>Questions that exactly one of both runs has right. <a href=${link(['compare', slugs[0], slugs[1]])}>Differences with intervals</a></p>
    ${problems.map(text => html`<p class="problem">${text}</p>`)}
    <form class="filters" role="search" onSubmit=${event => event.preventDefault()}>
      <${Search} label="Words in texts and ids" value=${filters.text} onSearch=${text => change({ text })} />
      <${Select} label="Task" value=${filters.task} choices=${[['', 'all'], ...tasks.map(task => [task, labels[task]])]} onChange=${task => change({ task, group: '' })} />
      ${groups.length > 0 && html`<${Select} label="Group" value=${filters.group} choices=${[['', 'all'], ...groups.map(group => [group, words(group)])]} onChange=${group => change({ group })} />`}
      <${Select} label="Right" value=${filters.way} choices=${[['', 'either'], ...Object.entries(ways)]} onChange=${way => change({ way })} />
    </form>
    <p class="count" role="status">${count(shown.length)} of ${count(rows.length)} flips: ${total('first')} that ${ways.first} has right, ${total('second')} that ${ways.second} has right.</p>
    <ol class="questions">${shown.slice(page * SIZE, (page + 1) * SIZE).map(row => html`<li class="question" key=${`${row.task} ${row.row}`}><div class="asked">
      <a class="question-link" data-step href=${link(['question', slugs[0], row.task, row.row], { with: slugs[1] })}>${row.text || row.id}</a>
      <p class="about"><span class=${`outcome ${row.way === 'first' ? 'right' : 'wrong'}`}>${ways[row.way]}</span>
        ${Number.isFinite(row.first) && html`<span title=${`Margins of ${both[0].label} and ${both[1].label}`}>${signed(row.first)} against ${signed(row.second)}</span>`}
        <span>${labels[row.task]}</span>${(row.groups ?? []).map(group => html`<span>${words(group)}</span>`)}<span>${row.id}</span></p>
    </div></li>`)}</ol>
    ${!shown.length && html`<p class="empty">${rows.length ? 'No flip passes the filters.' : 'There is none: both runs have the same questions right.'}</p>`}
    <${Pages} total=${shown.length} size=${SIZE} page=${page} onPage=${next => change({ page: next ? next + 1 : '' })} />
    ${shown.length > 0 && html`<${SaveTable} caption=${`Flips between ${both[0].label} and ${both[1].label}`} name="flips" columns=${columns(both, ways, labels)} rows=${shown} />
      <p class="note">The surest flips come first. “+2 against −1” are the margins of ${both[0].label} and ${both[1].label}: the score of the right answer minus that of the best wrong one. For the order, each margin is divided by the median size of the margins of its run and task, and both sizes are added.</p>`}
    <h2>By task and group</h2>
    <${Table} caption="Flips by task and group" name="flips-by-group" rows=${table.filter(({ task }) => !filters.task || task === filters.task)} rowKey=${({ task, group }) => `${task} ${group}`} columns=${[
      { key: 'task', label: 'task', value: ({ task }) => labels[task] },
      { key: 'group', label: 'group', value: ({ group }) => (group ? words(group) : 'all'), cell: ({ task, group }) => html`<a href=${link(['flips', ...slugs], { task, group })}>${group ? words(group) : 'all'}</a>` },
      { key: 'first', label: ways.first, isNumber: true, cell: ({ first }) => count(first) },
      { key: 'second', label: ways.second, isNumber: true, cell: ({ second }) => count(second) },
      { key: 'net', label: `${both[1].label} minus ${both[0].label}`, isNumber: true, value: ({ first, second }) => second - first, cell: ({ first, second }) => number(second - first, 0) },
    ]} />
    <${Table} caption="All answers by task" name="answers-by-task" rows=${counts} rowKey=${({ task }) => task} columns=${[
      { key: 'task', label: 'task', value: ({ task }) => labels[task] },
      ...[['both', 'both right'], ['neither', 'neither right']].map(([key, label]) => ({ key, label, isNumber: true, cell: row => count(row[key]) })),
      ...['first', 'second'].map(key => ({ key, label: ways[key], isNumber: true, value: ({ task }) => table.find(row => row.task === task && !row.group)?.[key] ?? 0 })),
    ]} />`
}

// Counts of flips by task, and by its groups.
function byGroup(rows) {
  const found = new Map()
  const add = (task, group, way) => {
    const key = `${task} ${group}`
    if (!found.has(key)) found.set(key, { task, group, first: 0, second: 0 })
    found.get(key)[way] += 1
  }
  for (const { task, groups, way } of rows) for (const group of ['', ...(groups ?? [])]) add(task, group, way)
  return [...found.values()].sort((one, other) => one.task.localeCompare(other.task) || one.group.localeCompare(other.group, 'en', { numeric: true }))
}

const columns = (both, ways, labels) => [
  { key: 'task', label: 'task', value: ({ task }) => labels[task] },
  { key: 'id', label: 'id' },
  { key: 'groups', label: 'groups', value: ({ groups }) => (groups ?? []).join('; ') },
  { key: 'question', label: 'question', value: ({ text }) => text },
  { key: 'right', label: 'right', value: ({ way }) => ways[way] },
  { key: 'margin_first', label: `margin, ${both[0].label}`, value: ({ first }) => finite(first), isNumber: true },
  { key: 'margin_second', label: `margin, ${both[1].label}`, value: ({ second }) => finite(second), isNumber: true },
]

const finite = value => (Number.isFinite(value) ? value : null)
